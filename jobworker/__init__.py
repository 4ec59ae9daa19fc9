"""The bot handles a document; the decision is recorded, and its effects reach LINE."""
