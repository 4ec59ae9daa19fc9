"""The bots that ship; each uses jobworker's public API only."""
