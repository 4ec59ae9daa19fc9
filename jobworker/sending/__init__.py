"""Sends: each effect reaches LINE once, in order."""
