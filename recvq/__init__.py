"""The contract of every stored document, the collections and their indexes, and inserting."""
