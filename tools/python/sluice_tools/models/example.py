"""What an imported model is tried with: the inputs that a user describes or gives."""

from pathlib import Path

import torch

from sluice_tools.common.errors import first_line, usage_error
from sluice_tools.models.arguments import Arguments
from sluice_tools.models.tensor_specs import ANY, TYPES, TensorSpec, shape_text
from sluice_tools.models.weights import read_file

# The server tries a model with the first of these.
ANY_SIDES = (64, 48)
NAMES = {getattr(torch, name): datatype for datatype, name in TYPES.items()}


class Example:
    """Inputs in the order of forward(), each of which belongs to one of its arguments."""

    def __init__(
        self, inputs: list[TensorSpec], path: Path | None, taken: Arguments, batched: bool, device: str = "cpu"
    ):
        self.batched = batched
        self._device = device
        given = _read(path, device) if path else {}
        unnamed = isinstance(given, list)
        if isinstance(given, list):
            wanted = [spec.name for spec in inputs] or taken.for_list(len(given))
            if len(wanted) != len(given):
                raise usage_error(f"{path} has {len(given)} of the {len(wanted)} inputs")
            given = dict(zip(wanted, given))
        specs = inputs or self._specs_of(given)
        names = [spec.name for spec in specs]
        arguments = taken.of_inputs(names) if inputs or unnamed else taken.of_dictionary(names, str(path))
        order = taken.order(arguments)
        if inputs and unnamed and order != sorted(order):
            raise usage_error(
                f"{path} is a list, so give each --input in the order of forward(): {', '.join(taken.names)}"
            )
        self.arguments = [arguments[i] for i in order]
        self.specs = [specs[i] for i in order]
        self.given = [given[spec.name] for spec in self.specs if spec.name in given]
        if path:
            self._require_fit(path)
        if not self.specs:
            raise usage_error("no inputs: give --input NAME:TYPE:SHAPE for each, or --example FILE")

    @property
    def sides(self) -> tuple[int, ...]:
        """What stands for a side of any size, one after the other."""
        return ANY_SIDES if any(ANY in spec.shape for spec in self.specs) else ANY_SIDES[:1]

    def ones(self, batch: int, side: int = ANY_SIDES[0]) -> list[torch.Tensor]:
        """A mask of ones masks nothing."""
        return self._made(torch.ones, batch, side)

    def zeros(self, batch: int, side: int = ANY_SIDES[0]) -> list[torch.Tensor]:
        """The server loads a model with these, and fills batches with them."""
        return self._made(torch.zeros, batch, side)

    def mixed(self, batch: int, side: int = ANY_SIDES[0]) -> list[torch.Tensor]:
        """Zeros and ones, and all between them for floating point: a mask masks something."""
        generator = torch.Generator().manual_seed(1)

        def make(shape, dtype):
            values = torch.rand(shape, generator=generator, dtype=torch.float64)
            return (values if dtype.is_floating_point else values.round()).to(dtype)

        return self._made(make, batch, side)

    def permuted(self, batch: int) -> list[list[torch.Tensor]]:
        """For each input, tensors in which its elements alone change places. Ids and lengths stay valid so."""
        whole = self.given or self.mixed(batch)
        generator = torch.Generator().manual_seed(2)
        cases = []
        for i, tensor in enumerate(whole):
            order = torch.randperm(tensor.numel(), generator=generator).to(tensor.device)
            cases.append([*whole[:i], tensor.flatten()[order].view(tensor.shape), *whole[i + 1 :]])
        return cases if len(cases) > 1 else []

    def _made(self, make, batch: int, side: int) -> list[torch.Tensor]:
        tensors = []
        for spec in self.specs:
            shape = [side if size == ANY else size for size in spec.shape]
            shape = [batch, *shape] if self.batched else shape
            try:
                tensors.append(make(shape, dtype=getattr(torch, TYPES[spec.datatype])).to(self._device))
            except (RuntimeError, MemoryError) as error:
                raise usage_error(
                    f"no memory for the input '{spec.name}' of {shape_text(shape)}: {first_line(error)}"
                ) from error
        return tensors

    def _specs_of(self, tensors: dict) -> list[TensorSpec]:
        skipped = 1 if self.batched else 0
        return [
            TensorSpec(name, NAMES.get(tensor.dtype, str(tensor.dtype)), list(tensor.shape)[skipped:])
            for name, tensor in tensors.items()
        ]

    def _require_fit(self, path: Path) -> None:
        if len(self.given) != len(self.specs):
            raise usage_error(f"{path} has {len(self.given)} of the {len(self.specs)} inputs")
        batches = {tensor.shape[0] if tensor.dim() else None for tensor in self.given} if self.batched else {1}
        if len(batches) > 1 or None in batches:
            raise usage_error(
                f"{path}: its tensors have different first dimensions, which is the batch; see --no-batch"
            )
        for found, spec in zip(self._specs_of(dict(zip((s.name for s in self.specs), self.given))), self.specs):
            if found.datatype not in TYPES:
                raise usage_error(f"{path}: '{spec.name}' is {found.datatype}, which cannot be served")
            same = len(found.shape) == len(spec.shape) and all(w in (ANY, f) for f, w in zip(found.shape, spec.shape))
            if found.datatype != spec.datatype or not same:
                raise usage_error(
                    f"{path}: '{spec.name}' is {found.datatype} {shape_text(found.shape)}, "
                    f"but --input says {spec.datatype} {shape_text(spec.shape)}"
                )
        for spec, tensor in zip(self.specs, self.given):
            if tensor.numel() == 0:
                raise usage_error(f"{path}: '{spec.name}' has no elements")


def _read(path: Path, device: str) -> dict[str, torch.Tensor] | list[torch.Tensor]:
    try:
        example = read_file(path, device)
    except ValueError as error:
        raise usage_error(f"--example {path} cannot be read: {error}") from error
    if isinstance(example, torch.Tensor):
        example = [example]
    values = list(example.values()) if isinstance(example, dict) else example
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, torch.Tensor) for value in values):
        raise usage_error(f"--example {path} holds neither tensors by name nor a list of tensors")
    return {str(name): value for name, value in example.items()} if isinstance(example, dict) else list(example)
