"""Handlers in other processes: jobs go out over a broker, decisions come back."""
