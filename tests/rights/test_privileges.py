"""What each user may do is enough for his work, and ends there."""
