"""The scheduler: timers that are due become documents in recvq, each once."""
