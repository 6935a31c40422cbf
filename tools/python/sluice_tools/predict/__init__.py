"""The page of `sluice predict report`: predicted against measured."""
