"""LINE's HTTP API, the simulator's own API, and their server."""
