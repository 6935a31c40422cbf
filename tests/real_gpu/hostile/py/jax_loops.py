"""JAX: while loops, scans, donated arguments, callbacks to the host, asynchronous dispatch."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
import numpy as np
from common import clock, report


@jax.jit
def loop(x):
    return jax.lax.while_loop(
        lambda s: s[0] < 40, lambda s: (s[0] + 1, s[1] * 1664525 + s[0].astype(jnp.uint32)), (0, x)
    )[1]


@jax.jit
def scan(x, salts):
    return jax.lax.scan(lambda c, s: (c * jnp.uint32(22695477) + s, c[0]), x, salts)


step = jax.jit(lambda x, s: x * jnp.uint32(1664525) + s, donate_argnums=0)


@jax.jit
def with_host(x):
    seen = jax.pure_callback(lambda v: np.uint32(v & np.uint32(255)), jax.ShapeDtypeStruct((), jnp.uint32), x[0])
    return x + seen


x = jnp.full(4096, 7, jnp.uint32)
salts = jnp.arange(30, dtype=jnp.uint32)
x = with_host(step(scan(loop(x), salts)[0], jnp.uint32(1))).block_until_ready()
begin = clock()
count = 250
for i in range(count):
    x = loop(x)
    x, _ = scan(x, salts)
    for k in range(10):
        x = step(x, jnp.uint32(i + k))
    if i % 10 == 9:
        x = with_host(x)
        x.block_until_ready()
x.block_until_ready()
took = clock() - begin
report(int(np.asarray(x).astype(np.uint64).sum()), count, took)
