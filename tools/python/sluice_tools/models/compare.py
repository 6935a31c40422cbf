"""Does an exported model compute what the model computes?"""

import torch

from sluice_tools.common.errors import run_error

# Of the largest value of an output: folded batch norms and other kernels round differently.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 2e-1}


def tensors_of(output) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        return list(output.values())
    raise run_error(f"it returns a {type(output).__name__}, not a tensor")


def require_close(found, wanted, dtype: torch.dtype) -> None:
    got, want = tensors_of(found), tensors_of(wanted)
    if [value.shape for value in got] != [value.shape for value in want]:
        raise run_error("its outputs have other shapes than the model's")
    for one, other in zip(got, want):
        one, other = one.to(torch.float64), other.to(torch.float64)
        finite = other[other.isfinite()].abs()
        scale = (finite.max().item() if finite.numel() else 0.0) or 1.0
        tolerance = _TOLERANCE.get(dtype, _TOLERANCE[torch.float32])
        # Masked values are infinite, and what is left of a masked row is NaN.
        if not torch.allclose(one, other, rtol=0, atol=tolerance * scale, equal_nan=True):
            raise run_error("it computes something else than the model")
