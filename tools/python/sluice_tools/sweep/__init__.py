"""`sluice sweep`: an experiment under many values of a policy."""
