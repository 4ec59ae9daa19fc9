"""What a leader knows of each conversation."""
