"""The clock: timers that are due become documents in recvq, each ring once."""
