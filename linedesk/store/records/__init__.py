"""The collections' fields: names that several modules need, and rows as typed records. Pure."""
