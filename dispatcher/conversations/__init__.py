"""The knowledge of a leader about each conversation."""
