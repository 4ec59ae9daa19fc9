"""The bots that linedesk ships; each is an example of the bot API."""
