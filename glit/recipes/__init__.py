"""From TOML to frozen dataclasses, and the resources that ship with glit."""
