"""What a decided event leaves in MongoDB: conversations, dead letters, timers."""
