"""The work folder of a build: listing, stage tables, ledgers, and what a build notes of itself."""
