"""`sluice cdi`: the file that gives containers a priority by a device."""
