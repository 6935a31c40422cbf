"""`sluice bench programs`: programs that Sluice was not tuned on, alone, bare together, and under Sluice."""
