"""Which programs `sluice bench programs` has, and which of them run together."""

from dataclasses import dataclass, replace

POISSON, PERIODIC, BUSY = "poisson", "periodic", "busy"
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
    gpus: int = 1
    device: int = 0  # the first GPU that it uses, from the first GPU of the measurement
    simulated: bool = False  # runs on the simulated GPU; the others run on the CPU instead

    @property
    def serves(self) -> bool:
        return bool(self.arrivals)

    @property
    def devices(self) -> range:
        return range(self.device, self.device + self.gpus)

    def period_ms(self, tiny: bool) -> float:
        return _TINY_EVERY_MS if tiny and not self.simulated else self.every_ms


_SERVING = (
    Program("vit-graph", "vision:vit_graph", "ViT-B/16, fp16, batch 8, one CUDA graph", POISSON, 8.0),
    Program("resnet50", "vision:resnet50", "ResNet-50, fp32, batch 4, eager", POISSON, 10.0),
    Program("resnet50-graph", "vision:resnet50_graph", "ResNet-50, fp16, batch 1, one CUDA graph", PERIODIC, 6.0),
    Program("bert-graph", "bert:graph", "BERT-large, fp16, batch 1, 128 tokens, one CUDA graph", PERIODIC, 8.0),
    Program("fasterrcnn", "vision:fasterrcnn", "FasterRCNN-ResNet50-FPN, 720 x 1280, TorchScript", PERIODIC, 65.0),
    Program("decode", "language:decode", "LLM decoding, 16 layers of 2048, 64 + 8 tokens, eager", POISSON, 75.0),
    Program(
        "two-in-flight", "language:two_in_flight", "the same model, a token a request, two in flight, events", BUSY
    ),
    Program("llama-token", "generation:token", "a token of a Llama of 1B, Hugging Face, eager", PERIODIC, 12.0),
    Program("gpt2", "generation:gpt2", "Hugging Face generate(), GPT-2 small, 8 tokens", POISSON, 150.0),
    Program("whisper", "generation:whisper", "Whisper base, 30 s of audio, 8 tokens, eager", POISSON, 100.0),
    Program("diffusion", "unet:denoise", "U-Net, fp16, 4 denoising steps, eager", BUSY),
    Program("jax-mlp", "jax_programs:infer", "JAX: MLP of 8 layers, 4096 wide, batch 64, bf16", POISSON, 8.0),
    Program("two-gpu-resnet50", "gang:inference", "ResNet-50 on two GPUs at once, batch 4 on each", POISSON, 20.0, 2),
    Program("kernels-50us", "kernels:four_of_50us", "4 kernels of 50 us", PERIODIC, 8.0, simulated=True),
    Program("kernels-250us", "kernels:twenty_of_250us", "20 kernels of 250 us", PERIODIC, 12.0, simulated=True),
)
_STEPPING = (
    Program("mobilenet-training", "vision:mobilenet_training", "MobileNetV2 training, fp32, batch 256"),
    Program("resnet152-batch", "vision:resnet152_batch", "ResNet-152, fp16, batch 256, eager"),
    Program("resnet152-graph", "vision:resnet152_graph", "ResNet-152, fp16, batch 256, one CUDA graph"),
    Program("bert-batch", "bert:batch", "BERT-large, fp16, batch 8, 512 tokens, eager"),
    Program("jax-gradient", "jax_programs:gradient", "JAX: gradient of an MLP of 24 layers, 4096 wide, bf16"),
    Program("prefill", "language:prefill", "prefill of 4 x 2048 tokens, 16 layers of 2048"),
    Program("offline-generation", "language:offline_generation", "the same model, 64 prompts of 128 + 32 tokens"),
    Program("rl-rollouts", "language:rl_rollouts", "32 sequences of 16 tokens, a training step, weights copied back"),
    Program("compiled-training", "compiled:training", "training of a 12-layer encoder under torch.compile"),
    Program("timm-training", "loader:training", "timm ConvNeXt-T training, batch 64, 4 data-loader workers"),
    Program("ddp-training", "gang:training", "ResNet-50 training on two GPUs, NCCL, batch 64 on each", gpus=2),
    Program("triton-kernels", "triton_kernels:steps", "Triton: row softmax and fused bias, GELU and residual"),
    Program("cupy-arrays", "cupy_arrays:steps", "CuPy: FFT, matrix product and element-wise kernels"),
    Program("unet-batch", "unet:batch", "U-Net, fp16, batch 16, eager"),
    Program("llama-finetuning", "llama:finetuning", "fine-tuning of a Llama of 0.4B, bf16, 8 x 512 tokens, AdamW"),
    Program("resnet-training", "vision:resnet_training", "ResNet-50 training, mixed precision, batch 64"),
    Program("matrix-products", "vision:matrix_products", "8 products of 8192 x 8192, fp16"),
    Program("kernels-1ms", "kernels:ten_of_1ms", "10 kernels of 1 ms", simulated=True),
    Program("kernels-5ms", "kernels:eight_of_5ms", "8 kernels of 5 ms", simulated=True),
)  # fmt: skip
PROGRAMS = {program.name: program for program in (*_SERVING, *_STEPPING)}
_BUSY_SUFFIX = "-busy"


def program_of(name: str) -> Program:
    """One of PROGRAMS. NAME-busy: the same with its requests back to back; NAME@1: on the next GPU; NAME:2: a second
    copy. Raises ValueError."""
    base, _, copy = name.partition(":")
    base, _, device = base.partition("@")
    program = PROGRAMS.get(base.removesuffix(_BUSY_SUFFIX))
    known = program is not None and (program.name == base or program.arrivals in (POISSON, PERIODIC))
    right = (copy or "2").isdecimal() and (device or "1") in "01" and not name.endswith(("@", ":"))
    if program is None or not known or not right:
        raise ValueError(
            f"'{name}' is not one of {', '.join(PROGRAMS)}, or {_SERVING[0].name}{_BUSY_SUFFIX}, "
            f"{_SERVING[0].name}@1, {_SERVING[0].name}:2 and so on"
        )
    if base != program.name:
        program = replace(program, arrivals=BUSY, every_ms=0.0)
    return replace(program, name=name, device=int(device or 0))


@dataclass(frozen=True)
class Mix:
    """Programs that run together. The first that serves requests is the critical one; others that serve have priorities
    between it and best effort."""

    programs: tuple[Program, ...]

    @property
    def name(self) -> str:
        return "+".join(program.name for program in self.programs)

    @property
    def critical(self) -> Program | None:
        return self.programs[0] if self.programs[0].serves else None

    @property
    def best_effort(self) -> tuple[Program, ...]:
        return tuple(program for program in self.programs if not program.serves)

    @property
    def gpus(self) -> int:
        return max(program.devices.stop for program in self.programs)

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
    if not mix.best_effort:
        raise ValueError(f"'{name}' has no program that makes steps, so nobody is best effort")
    if mix.critical is None and any(program.serves for program in mix.programs):
        raise ValueError(f"'{name}': {mix.programs[0].name} serves no requests, so it cannot come first")
    return mix


def _mixes(text: str) -> tuple[Mix, ...]:
    return tuple(mix_of(name) for name in text.split())


# By what is special about them.
KINDS = {
    "graph": _mixes("vit-graph+mobilenet-training resnet50-graph+resnet152-batch jax-mlp+prefill"),
    "pairs": _mixes(
        "resnet50-graph+resnet152-graph resnet50-graph+resnet-training resnet50-graph+bert-batch bert-graph+bert-batch "
        "bert-graph+resnet152-batch bert-graph+resnet-training fasterrcnn+resnet152-batch fasterrcnn+resnet-training"
    ),
    "host-bound": _mixes(
        "resnet50+jax-gradient decode+prefill gpt2+compiled-training whisper+triton-kernels resnet50+cupy-arrays "
        "decode+unet-batch llama-token+matrix-products"
    ),
    "busy": _mixes(
        "decode-busy+prefill resnet50-busy+jax-gradient vit-graph-busy+mobilenet-training diffusion+timm-training "
        "llama-token-busy+matrix-products"
    ),
    "async": _mixes("two-in-flight+prefill two-in-flight+mobilenet-training"),
    "several": _mixes(
        "vit-graph+prefill+cupy-arrays vit-graph+mobilenet-training+prefill "
        "jax-mlp+mobilenet-training+triton-kernels+unet-batch vit-graph+resnet50+prefill"
    ),
    "rl": _mixes("decode+rl-rollouts vit-graph+rl-rollouts"),
    "offline": _mixes("decode+offline-generation resnet50+offline-generation"),
    "gang": _mixes(
        "resnet50+ddp-training resnet50+resnet50@1+ddp-training vit-graph+ddp-training two-gpu-resnet50+ddp-training"
    ),
    "kernels": _mixes(
        "kernels-50us+kernels-5ms kernels-250us+kernels-5ms kernels-50us+kernels-1ms "
        "kernels-50us+kernels-5ms+kernels-1ms"
    ),
}
MIXES = tuple(mix for kind in KINDS.values() for mix in kind)


def mixes_of(text: str) -> tuple[Mix, ...]:
    """A mix, a kind of mixes, or all. Raises ValueError."""
    return MIXES if text == "all" else KINDS[text] if text in KINDS else (mix_of(text),)
