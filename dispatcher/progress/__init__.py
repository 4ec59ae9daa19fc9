"""How far all documents are finished: the `progress` document and the `held` collection."""
