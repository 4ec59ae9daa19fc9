"""Documents reach threads in order by key, with pauses and `held`."""
