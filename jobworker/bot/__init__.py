"""The bot API: handlers, talks, states, timers, messages and content."""
