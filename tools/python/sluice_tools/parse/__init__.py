"""`sluice parse`: what a kernel trace says about each model (docs/guide/traces.md)."""
