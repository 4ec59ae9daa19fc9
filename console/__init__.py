"""What an operator sees and does: figures put together, the story of an event, acts, the page."""
