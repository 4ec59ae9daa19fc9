"""The commands of `linedesk`."""
