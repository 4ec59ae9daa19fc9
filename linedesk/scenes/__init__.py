"""What happens in the demo's conversations, bot by bot and scene by scene."""
