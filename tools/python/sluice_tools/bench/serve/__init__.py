"""`sluice bench serve`: the model server under load, next to training, and against another server."""
