"""The inputs and outputs of an imported model: names, types and shapes. Needs no torch."""

from dataclasses import dataclass

from sluice_tools.common.errors import usage_error

ANY = -1
# The names of the protocol, and of torch.
TYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "BF16": "bfloat16",
    "FP32": "float32",
    "FP64": "float64",
}


@dataclass(frozen=True)
class TensorSpec:
    name: str
    datatype: str
    shape: list[int]  # of one item, without the batch dimension; ANY: any size

    def described(self) -> dict:
        return {"name": self.name, "datatype": self.datatype, "shape": self.shape}


def shape_text(shape: list[int]) -> str:
    return "x".join("any" if side == ANY else str(side) for side in shape)


def parse_shape(option: str, text: str) -> list[int]:
    """`3x224x224`, `any`, or nothing for one number."""
    sides = []
    for side in text.split("x") if text else []:
        if side != "any" and not (side.isdecimal() and 0 < int(side) < 2**31):
            raise usage_error(f"{option}: found the side '{side}', expected a number from 1, or any")
        sides.append(ANY if side == "any" else int(side))
    return sides


def parse_inputs(texts: list[str]) -> list[TensorSpec]:
    """Each NAME:TYPE:SHAPE."""
    specs = []
    for text in texts:
        option = f"--input {text}"
        parts = text.rsplit(":", 2)  # A name may have colons, as those of TensorFlow have.
        if len(parts) != 3 or not _is_name(parts[0]):
            raise usage_error(f"{option}: expected NAME:TYPE:SHAPE, such as image:FP32:3x224x224")
        if parts[1] == "BYTES":
            raise usage_error(f"{option}: BYTES is text, and a PyTorch model takes numbers: send token ids, INT64")
        if parts[1] not in TYPES:
            raise usage_error(f"{option}: unknown type '{parts[1]}', known: {', '.join(TYPES)}")
        specs.append(TensorSpec(parts[0], parts[1], parse_shape(option, parts[2])))
    require_different("--input", [spec.name for spec in specs])
    return specs


def parse_outputs(texts: list[str]) -> list[tuple[str, list[int] | None]]:
    """Each NAME or NAME:SHAPE."""
    found = []
    for text in texts:
        name, colon, shape = text.partition(":")
        if not _is_name(name):
            raise usage_error(f"--output {text}: expected NAME or NAME:SHAPE")
        found.append((name, parse_shape(f"--output {text}", shape) if colon else None))
    require_different("--output", [name for name, _ in found])
    return found


def _is_name(text: str) -> bool:
    return text.isprintable() and " " not in text and text != ""


def require_different(option: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise usage_error(f"{option}: '{name}' is given twice")
