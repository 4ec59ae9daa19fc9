"""Judges a run: compares its messages with the rules of LINE and the expectations of users."""
