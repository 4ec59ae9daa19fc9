"""`linedesk demo`: the real processes, a simulated LINE, and people who write."""
