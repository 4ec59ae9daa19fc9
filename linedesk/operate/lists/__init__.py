"""Lists to browse without an id, and acts on many dead letters. All reads are bounded."""
