"""`sluice demo`: one critical and one best-effort model alone, then together under each policy."""
