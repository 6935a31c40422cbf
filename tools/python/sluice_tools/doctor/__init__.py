"""`sluice doctor`: what Sluice needs on this machine, for this user and in this shell."""
