"""What people do, and the webhooks that follow."""
