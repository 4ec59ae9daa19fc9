"""Bots written with line-bot-sdk: their handlers and their clients."""
