"""`sluice models`: exports PyTorch models into the store that `sluice run` reads."""
