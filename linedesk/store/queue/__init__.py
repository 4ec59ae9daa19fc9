"""The capped collection recvq: its guard and usage; the repair of the other collections."""
