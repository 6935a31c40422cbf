"""`sluice compare`: two commands of the user, alone, without gating, and under policies."""
