"""An unmodified JAX program: the gradient of a 24-layer MLP, which XLA makes one CUDA graph, for some seconds.

python3 jax_loop.py [SECONDS]
"""

import os
import sys
import time

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0


def main():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    layers, width = 24, 4096
    keys = jax.random.split(jax.random.key(1), layers)
    weights = [(jax.random.normal(key, (width, width)) / width**0.5).astype(jnp.bfloat16) for key in keys]
    inputs = jax.random.normal(jax.random.key(2), (2048, width)).astype(jnp.bfloat16)

    def loss(weights):
        x = inputs
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    gradient = jax.jit(jax.grad(loss))
    for _ in range(20):
        jax.block_until_ready(gradient(weights))
    steps, begin = 0, time.monotonic()
    while time.monotonic() - begin < SECONDS:
        jax.block_until_ready(gradient(weights))
        steps += 1
    print(f"{steps / (time.monotonic() - begin):.1f} steps/s")


if __name__ == "__main__":
    main()
