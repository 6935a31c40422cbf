"""Which programs `sluice bench programs` has, which of them run together, and under which conditions."""

from dataclasses import dataclass, replace

from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

POISSON, BUSY = "poisson", "busy"
BARE, DEFAULT = "bare", "device:200us"
TARGET = "p99=1.3x"  # for host-bound critical programs, where --targets says nothing else
TIME_SLICED, MPS_PRIORITY = "time-sliced", "MPS + priority"
MODES = (TIME_SLICED, MPS_PRIORITY)
_TINY_EVERY_MS = 30.0


@dataclass(frozen=True)
class Program:
    """A program that serves requests, or one that makes steps."""

    name: str
    place: str  # module:function in this folder
    text: str
    arrivals: str = ""  # of its requests; empty for a program that makes steps
    every_ms: float = 0.0  # mean time between arrivals
    host_bound: bool = False

    @property
    def serves(self) -> bool:
        return bool(self.arrivals)

    def period_ms(self, tiny: bool) -> float:
        return _TINY_EVERY_MS if tiny else self.every_ms


_SERVING = (
    Program("vit-graph", "vision:vit_graph", "ViT-B/16, fp16, batch 8, one CUDA graph", POISSON, 8.0),
    Program("resnet50", "vision:resnet50", "ResNet-50, fp32, batch 4, eager", POISSON, 10.0, True),
    Program("decode", "language:decode", "LLM decoding, 16 layers of 2048, 64 + 8 tokens, eager", POISSON, 75.0, True),
    Program("gpt2", "generation:gpt2", "Hugging Face generate(), GPT-2 small, 8 tokens", POISSON, 150.0, True),
    Program("whisper", "generation:whisper", "Whisper base, 30 s of audio, 8 tokens, eager", POISSON, 100.0, True),
    Program("diffusion", "unet:denoise", "U-Net, fp16, 4 denoising steps, eager", BUSY, 0.0, True),
    Program("jax-mlp", "jax_programs:infer", "JAX: MLP of 8 layers, 4096 wide, batch 64, bf16", POISSON, 8.0),
)
_STEPPING = (
    Program("mobilenet-training", "vision:mobilenet_training", "MobileNetV2 training, fp32, batch 256"),
    Program("jax-gradient", "jax_programs:gradient", "JAX: gradient of an MLP of 24 layers, 4096 wide, bf16"),
    Program("prefill", "language:prefill", "prefill of 4 x 2048 tokens, 16 layers of 2048"),
    Program("compiled-training", "compiled:training", "training of a 12-layer encoder under torch.compile"),
    Program("timm-training", "loader:training", "timm ConvNeXt-T training, batch 64, 4 data-loader workers"),
    Program("triton-kernels", "triton_kernels:steps", "Triton: row softmax and fused bias, GELU and residual"),
    Program("cupy-arrays", "cupy_arrays:steps", "CuPy: FFT, matrix product and element-wise kernels"),
    Program("unet-batch", "unet:batch", "U-Net, fp16, batch 16, eager"),
)
PROGRAMS = {program.name: program for program in (*_SERVING, *_STEPPING)}
_BUSY_SUFFIX = "-busy"


def program_of(name: str) -> Program:
    """One of PROGRAMS, or NAME-busy: the same with its requests back to back. Raises ValueError."""
    program = PROGRAMS.get(name.removesuffix(_BUSY_SUFFIX))
    if program is None or (program.name != name and program.arrivals != POISSON):
        raise ValueError(f"'{name}' is not one of {', '.join(PROGRAMS)}, or {_SERVING[0].name}{_BUSY_SUFFIX} and so on")
    return program if program.name == name else replace(program, name=name, arrivals=BUSY, every_ms=0.0)


@dataclass(frozen=True)
class Mix:
    """Programs that run together. The first is the critical one.

    A program that serves requests but is not the first has a priority between it and best effort.
    """

    programs: tuple[Program, ...]

    @property
    def name(self) -> str:
        return "+".join(program.name for program in self.programs)

    @property
    def critical(self) -> Program:
        return self.programs[0]

    @property
    def others(self) -> tuple[Program, ...]:
        return self.programs[1:]

    def priority(self, program: Program) -> int:
        """0 for best effort; critical programs count down from how many there are."""
        serving = [one for one in self.programs if one.serves]
        return len(serving) - serving.index(program) if program.serves else 0


def mix_of(name: str) -> Mix:
    """Any mix, such as resnet50+prefill+cupy-arrays. Raises ValueError."""
    names = [part.strip() for part in name.split("+")]
    mix = Mix(tuple(program_of(part) for part in names))
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise ValueError(f"'{name}' does not name two or more different programs")
    if not mix.critical.serves:
        raise ValueError(f"'{name}': {mix.critical.name} serves no requests, so it cannot come first")
    return mix


MIXES = tuple(
    mix_of(name)
    for name in (
        "vit-graph+mobilenet-training",
        "resnet50+jax-gradient",
        "decode+prefill",
        "gpt2+compiled-training",
        "jax-mlp+prefill",
        "whisper+triton-kernels",
        "diffusion+timm-training",
        "resnet50+cupy-arrays",
        "decode+unet-batch",
        "vit-graph+prefill+cupy-arrays",
        "jax-mlp+mobilenet-training+triton-kernels+unet-batch",
        "vit-graph+resnet50+prefill",
        "decode-busy+prefill",
        "resnet50-busy+jax-gradient",
        "vit-graph-busy+mobilenet-training",
    )
)


@dataclass(frozen=True)
class Condition:
    """What runs in a cell. Programs that do not run are loaded and idle."""

    name: str
    target: str = ""

    @property
    def sluice(self) -> bool:
        return self.name not in (ALONE, BEST_EFFORT_ALONE, BARE)


def targets_of(mix: Mix, targets: list | None) -> list:
    """targets: None for the default, which is for host-bound programs."""
    if targets is None:
        return [TARGET] if mix.critical.host_bound else []
    return targets


def conditions(mix: Mix, targets: list | None) -> list[Condition]:
    names = [Condition(name) for name in (ALONE, BEST_EFFORT_ALONE, BARE, DEFAULT)]
    return names + [Condition(f"target {target}", target) for target in targets_of(mix, targets)]
