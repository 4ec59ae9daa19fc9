"""Stored documents reach a thread, in order by key, once; nothing here knows LINE."""
