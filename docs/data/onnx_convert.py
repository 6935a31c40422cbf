"""Which ONNX files does onnx2torch convert, and does the result compute what ONNX Runtime computes?

usage: onnx_convert.py [--fold] [--shape NAME=3xnx64] FILE...

Needs onnx, onnx2torch, onnxruntime and torch. Prints a line for each file that ONNX Runtime loads: the verdict, and the
greatest difference of an output from that of ONNX Runtime, relative to its largest value, for batches of 1 and 3 of a
trace that was made with 1. --fold: after ONNX Runtime has folded constants. --shape: of an input whose sides the file
leaves open; n is the batch. The table is in docs/guide/own-models.md.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx2torch
import onnxruntime as ort
import torch

_TYPES = {
    "float": np.float32,
    "float16": np.float16,
    "double": np.float64,
    "int32": np.int32,
    "int64": np.int64,
    "bool": bool,
}
_OPEN = 32  # a side that a file leaves open


def session(path: str, folded: str | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if folded:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = folded
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def inputs(model: ort.InferenceSession, shapes: dict[str, list[str]], batch: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    made = {}
    for wanted in model.get_inputs():
        sides = shapes.get(wanted.name) or ["n", *[str(_OPEN)] * (len(wanted.shape) - 1)]
        shape = [
            size if isinstance(size, int) and size > 0 else batch if side == "n" else int(side)
            for size, side in zip(wanted.shape, sides)
        ]
        kind = _TYPES[wanted.type.removeprefix("tensor(").removesuffix(")")]
        values = random.random(shape) if np.issubdtype(kind, np.floating) else random.integers(0, 2, shape)
        made[wanted.name] = values.astype(kind)
    return made


def difference(trace, model: ort.InferenceSession, given: dict[str, np.ndarray]) -> str:
    wanted = model.run(None, given)
    try:
        found = trace(*(torch.from_numpy(value) for value in given.values()))
    except RuntimeError:
        return "fails"
    found = [value.detach().numpy() for value in (found if isinstance(found, (tuple, list)) else [found])]
    if [value.shape for value in found] != [value.shape for value in wanted]:
        return "other shapes"
    pairs = [(np.abs(a.astype(float) - b).max(), np.abs(b).max()) for a, b in zip(found, wanted) if b.size]
    return f"{max(d / (scale or 1) for d, scale in pairs):.1e}"


def verdict(path: str, shapes: dict[str, list[str]]) -> str:
    model = session(path)
    given = inputs(model, shapes, 1)
    try:
        module = onnx2torch.convert(onnx.load(path)).eval()
        trace = torch.jit.trace(module, tuple(map(torch.from_numpy, given.values())), strict=False, check_trace=False)
    except Exception as error:
        return f"not converted: {type(error).__name__}: {str(error).splitlines()[0][:100]}"
    three = inputs(model, shapes, 3)
    return f"converted: batch 1 {difference(trace, model, given)}, batch 3 {difference(trace, model, three)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fold", action="store_true")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=SHAPE")
    parser.add_argument("files", nargs="+", metavar="FILE")
    args = parser.parse_args()
    shapes = {name: shape.split("x") for name, shape in (text.split("=") for text in args.shape)}
    with tempfile.TemporaryDirectory() as folder:
        for file in args.files:
            folded = str(Path(folder, Path(file).name))
            try:
                if args.fold:
                    session(file, folded)
                print(Path(file).name, verdict(folded if args.fold else file, shapes), flush=True)
            except Exception as error:
                print(Path(file).name, f"ONNX Runtime: {str(error).splitlines()[0][:150]}", flush=True)


main()
