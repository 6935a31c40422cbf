"""`sluice device-plugin`: GPUs with a priority, for Kubernetes."""
