"""Orders of operators: pauses and releases, and replays of dead letters."""
