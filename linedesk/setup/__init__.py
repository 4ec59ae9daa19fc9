"""`linedesk init`: makes the database, its users and their files."""
