"""Measurements of linedesk, by itself and beside others: `python -m bench list`."""
