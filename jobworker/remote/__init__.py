"""Handlers in other processes: jobs are sent over a broker, decisions come back."""
