"""What the PyTorch programs share."""

import time

import numpy as np
import torch

from sluice_tools.bench.programs.setting import Setting

# A graph keeps the waits that it is made with, so Sluice has to know how long its kernels take before.
_WARM_UPS = 5
_LOOK_S = 0.02  # between two of them, for the samples to be read


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
            stream.synchronize()
            time.sleep(_LOOK_S)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = compute()
    return graph, output


def by_graph(setting: Setting, model, inputs: list[torch.Tensor]):
    """Requests that copy one of `inputs` to where one CUDA graph of the model reads it, and replay the graph; without a
    GPU, they run the model."""
    batch = inputs[0].to(setting.device, copy=True)
    with torch.inference_mode():
        graph, output = captured(lambda: model(batch)) if setting.gpu else (None, None)

    @torch.inference_mode()
    def request(index: int):
        batch.copy_(inputs[index], non_blocking=True)
        if graph is None or output is None:
            return to_host(model(batch))
        graph.replay()
        return to_host(output)

    return request
