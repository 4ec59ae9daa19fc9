"""Judges a run: what was sent and received against what LINE and its users may expect."""
