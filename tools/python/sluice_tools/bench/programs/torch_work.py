"""What the PyTorch programs share."""

import numpy as np
import torch

from sluice_tools.bench.programs.setting import Setting

_WARM_UPS = 5


def begin(setting: Setting) -> torch.dtype:
    """Seeds everything. Gives the half type, which is float32 on a CPU."""
    torch.manual_seed(0)
    if not setting.gpu:
        torch.set_num_threads(1)
    return torch.float16 if setting.gpu else torch.float32


def to_host(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor: uint8, flat. Waits for the GPU."""
    return tensor.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy()


def on_host(setting: Setting, tensor: torch.Tensor) -> torch.Tensor:
    """An input from which a copy to the GPU is asynchronous."""
    return tensor.pin_memory() if setting.gpu else tensor


def marked(setting: Setting, step):
    """`step` as a program's step: launches work and gives a function that waits for it."""

    def launched():
        step()
        if not setting.gpu:
            return lambda: None
        event = torch.cuda.Event()
        event.record()
        return event.synchronize

    return launched


def captured(compute):
    """compute() as one CUDA graph: the graph, and the output that its replays fill."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            compute()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = compute()
    return graph, output
