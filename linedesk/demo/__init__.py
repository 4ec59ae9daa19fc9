"""`linedesk demo`: the real processes, a simulated LINE, and simulated users."""
