"""Feeds: documents of recvq in order, by a change stream or the oplog."""
