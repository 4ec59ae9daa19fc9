"""Users' actions, and the webhooks that follow."""
