"""MongoDB and the spool: documents, collections, inserts, and their errors."""
