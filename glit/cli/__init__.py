"""The command line: a thin shell over the library. Nothing imports it."""
