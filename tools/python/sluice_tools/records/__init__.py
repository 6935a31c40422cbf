"""`sluice records`: what `sluice serve --records` wrote, analysed (docs/reference/server-records.md)."""
