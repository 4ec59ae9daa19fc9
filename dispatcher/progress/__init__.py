"""How far everything is finished: the `progress` document and the `held` collection."""
