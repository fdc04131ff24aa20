"""All file access, local and at addresses; a file that exists is complete."""
