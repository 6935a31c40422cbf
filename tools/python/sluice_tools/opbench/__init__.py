"""The report of `sluice opbench`: records as a table and a page (docs/reference/opbench.md)."""
