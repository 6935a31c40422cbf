"""`sluice records`: what `sluice serve --records` wrote, analysed (docs/reference/server-files.md)."""
