"""What LINE's side knows: people, chats, tokens, limits and faults."""
