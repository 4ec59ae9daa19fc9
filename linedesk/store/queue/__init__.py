"""The capped collection recvq: guard, backlog, retention; the repair of its neighbours."""
