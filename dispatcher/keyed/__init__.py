"""Documents reach threads in order by key, with pauses, `held`, and saves."""
