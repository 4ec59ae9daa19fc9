"""The feeds, progress, the key-ordered thread pool and the lease; it knows nothing of LINE."""
