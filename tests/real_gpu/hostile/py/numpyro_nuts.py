"""NumPyro: NUTS in one jitted loop."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from common import clock, report
from numpyro.infer import MCMC, NUTS

y = jnp.linspace(-1, 1, 64)


def model(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(mean, scale), obs=y)


mcmc = MCMC(NUTS(model), num_warmup=50, num_samples=50, progress_bar=False)
begin = clock()
mcmc.run(jax.random.PRNGKey(0), y)
mean = float(mcmc.get_samples()["mean"].mean())
took = clock() - begin
report("finite" if abs(mean) < 1 else mean, 100, took)
