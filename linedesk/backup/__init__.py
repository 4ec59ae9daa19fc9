"""`linedesk export` and `linedesk import`."""
