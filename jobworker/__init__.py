"""A document is handled by the bot, recorded, and its effects reach LINE."""
