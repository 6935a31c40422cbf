"""`sluice report`: one page of a run, or of several to compare."""
