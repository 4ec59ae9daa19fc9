"""`linedesk doctor`: checks an installation and reports findings."""
