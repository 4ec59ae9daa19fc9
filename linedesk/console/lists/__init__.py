"""What an operator browses without an id, and what is done to many dead letters. Bounded reads."""
