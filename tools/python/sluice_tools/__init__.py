"""The Python side of `sluice`: a subpackage for each command, and what they share."""
