"""The state of LINE's side: users, chats, tokens, limits and faults."""
