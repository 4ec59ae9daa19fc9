"""The results of decided events in MongoDB: conversations, dead letters, timers."""
