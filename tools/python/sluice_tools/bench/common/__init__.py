"""What the commands of `sluice bench` with programs of their own share."""
