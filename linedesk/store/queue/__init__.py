"""The capped collection recvq: its guard, its backlog, its retention, and its repair."""
