"""CUDA graphs of an unmodified JAX program, without any use of Sluice.

XLA builds its command buffers node by node, with child graphs for what cuBLAS launches, and updates
both. Prints a line for each case: its name and a hash of its results, which must be the same with and
without Sluice. graphs.sh --jax runs this program.

    python3 graphs_jax.py [--no-command-buffers] [--warm FILE]

--warm creates FILE when everything is compiled, and keeps the process alive at the end until FILE is
removed.
"""

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

COMMANDS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,WHILE"


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-command-buffers", action="store_true")
    parser.add_argument("--warm", type=Path)
    return parser.parse_args()


def choose_flags(command_buffers):
    """Before JAX is imported."""
    flags = [
        f"--xla_gpu_enable_command_buffer={COMMANDS if command_buffers else ''}",
        "--xla_gpu_graph_min_graph_size=1",
        "--xla_gpu_deterministic_ops=true",
        "--xla_gpu_autotune_level=0",  # two runs must choose the same kernels
    ]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags]).strip()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def digest(tree):
    import jax

    sha = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        sha.update(jax.device_get(leaf).tobytes())
    return sha.hexdigest()[:16]


def make_cases():
    import jax
    import jax.numpy as jnp

    layers, width, batch = 24, 2048, 1024
    keys = jax.random.split(jax.random.key(1), layers)
    weights = [(jax.random.normal(key, (width, width)) / width**0.5).astype(jnp.bfloat16) for key in keys]
    inputs = jax.random.normal(jax.random.key(2), (batch, width)).astype(jnp.bfloat16)

    def forward(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return x

    def loss(weights, x):
        return jnp.mean(forward(weights, x).astype(jnp.float32) ** 2)

    gradient = jax.jit(jax.grad(loss))

    @jax.jit
    def step(weights, x):
        slopes = jax.grad(loss)(weights, x)
        return [weight - 0.5 * slope for weight, slope in zip(weights, slopes, strict=True)]

    @jax.jit
    def until_small(x):
        return jax.lax.while_loop(
            lambda state: state[1] < 12, lambda state: (jnp.tanh(state[0] * 1.01), state[1] + 1), (x, 0)
        )

    def mlp_gradient():
        result = gradient(weights, inputs)
        for _ in range(59):
            result = gradient(weights, inputs)
        return result

    def training():
        """The buffers change at every step, so XLA updates its graph each time."""
        trained = weights
        for _ in range(60):
            trained = step(trained, inputs)
        return trained

    def loop():
        result = until_small(inputs)
        for _ in range(19):
            result = until_small(inputs)
        return result

    return [mlp_gradient, training, loop]


def main():
    options = parse()
    choose_flags(not options.no_command_buffers)
    cases = make_cases()
    for case in cases:
        case()
    if options.warm:
        options.warm.touch()
    for case in cases:
        started = time.monotonic()
        print(f"{case.__name__} {digest(case())}", flush=True)
        print(f"{case.__name__}: {time.monotonic() - started:.2f} s", file=sys.stderr)
    print("end", flush=True)
    while options.warm and options.warm.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    main()
