"""The parts of each process: its log, `/metrics`, its signals, and what systemd hands to it."""
