"""`sluice predict job_time`, `pairs` and `place`: what can be computed without a trained predictor."""
