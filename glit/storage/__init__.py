"""File access in folders and at addresses, locks, and checksummed files."""
