"""`sluice bench pairs`: a critical and a best-effort program side by side under every policy."""
