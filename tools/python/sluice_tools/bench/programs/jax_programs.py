"""JAX programs: inference of an MLP, and the gradient of a larger one. XLA makes either one CUDA graph."""

import jax
import jax.numpy as jnp
import numpy as np

from sluice_tools.bench.programs.requests import INPUTS
from sluice_tools.bench.programs.setting import Setting


def _weights(layers: int, width: int) -> list:
    """`layers` arrays (width, width), bf16."""
    keys = jax.random.split(jax.random.key(1), layers)
    return [(jax.random.normal(key, (width, width)) / width**0.5).astype(jnp.bfloat16) for key in keys]


def _apply(weights, x):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return x


def infer(setting: Setting):
    layers, width, batch = setting.size((8, 4096, 64), (2, 64, 2))
    weights = _weights(layers, width)
    made = np.random.default_rng(0)
    inputs = [made.standard_normal((batch, width), dtype=np.float32) for _ in range(INPUTS)]
    apply = jax.jit(lambda weights, x: _apply(weights, x.astype(jnp.bfloat16)).astype(jnp.float32))
    return lambda index: np.asarray(apply(weights, inputs[index]))


def gradient(setting: Setting):
    layers, width, batch = setting.size((24, 4096, 2048), (2, 64, 4))
    weights = _weights(layers, width)
    inputs = jax.random.normal(jax.random.key(2), (batch, width)).astype(jnp.bfloat16)

    def loss(weights):
        return jnp.mean(_apply(weights, inputs).astype(jnp.float32) ** 2)

    compute = jax.jit(jax.grad(loss))

    def step():
        made = compute(weights)
        return lambda: jax.block_until_ready(made)

    return step
