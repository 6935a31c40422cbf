"""The Python side of Sluice. Each subpackage is one `sluice` command."""
