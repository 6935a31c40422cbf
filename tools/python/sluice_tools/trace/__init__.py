"""`sluice trace`, and the reader of traces that the other commands use (docs/guide/traces.md)."""
