"""The fields of each collection: every name in one place, rows as typed records. Pure."""
