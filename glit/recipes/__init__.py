"""Load TOML into frozen dataclasses, and find the resources that ship with glit."""
