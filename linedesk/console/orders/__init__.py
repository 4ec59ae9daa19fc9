"""What operators order: pauses and releases, and replays of dead letters."""
