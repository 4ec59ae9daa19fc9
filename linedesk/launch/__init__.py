"""Composes each process from its settings, and `linedesk up` from all of them."""
