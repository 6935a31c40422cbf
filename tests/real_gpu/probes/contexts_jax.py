"""Launches work on each device and from several threads as JAX programs do, for libcontext_watch.so."""

import threading

import jax
import jax.numpy as jnp

devices = jax.devices()[:2]


@jax.jit
def step(x):
    return jnp.tanh(x @ x) + 1


def work():
    for device in devices:
        x = jax.device_put(jnp.ones((256, 256)), device)
        for _ in range(50):
            x = step(x)
        jax.grad(lambda y: step(y).sum())(x).block_until_ready()


work()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"P3 jax {jax.__version__}, {len(devices)} devices")
