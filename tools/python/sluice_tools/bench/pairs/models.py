"""The models of `sluice bench pairs`, as their users would run them: random weights, seed 0, and
PyTorch's defaults (fp32 with TF32 convolutions, NCHW) where nothing else is said.

On the CPU they are tiny and never a graph: to try the programs, not to measure.
"""

import functools
import time
import warnings

import torch
import torchvision

from sluice_tools.models import detection, encoder, names
from sluice_tools.models.store import Store, default_store

# Runs before a capture. Libraries set up at first use what cannot be captured, and a policy in time
# must have seen every kernel: what its waits in a graph go by is fixed with the first capture.
_WARM_UPS = 5
_LOOK_S = 0.02  # between two of them, for the samples to be read


def _on_gpu(device: str) -> bool:
    return device.startswith("cuda")


def name_of(device: str) -> str:
    return torch.cuda.get_device_name(device) if _on_gpu(device) else "CPU"


def use(device: str):
    """Makes it the current device, whose streams and events are meant where none is named."""
    if _on_gpu(device):
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    torch.manual_seed(0)


def _classifier(name: str, batch: int, device: str):
    """The model, and one input on the host."""
    with torch.device(device):
        model = torchvision.models.get_model(name, weights=None).eval()
    batch, side = (batch, 224) if _on_gpu(device) else (min(batch, 2), 64)
    return model, torch.rand(batch, 3, side, side)


def _bert(batch: int, length: int, device: str):
    size = "bert_large" if _on_gpu(device) else "bert_tiny"
    with torch.device(device):
        model = encoder.Encoder(*names.ENCODERS[size])
    if _on_gpu(device):
        model = model.half()
    return model.eval(), torch.randint(encoder.VOCABULARY, (batch, length))


def _stored_fasterrcnn():
    """The file of `sluice models export fasterrcnn_resnet50_fpn`; None if there is none."""
    store, name = Store(default_store()), "fasterrcnn_resnet50_fpn"
    for variant in (store.read(name) or {}).get("variants", ()):
        wanted = {"format": "torchscript", "dtype": "float32", "resizes": False}
        if all(variant.get(key) == value for key, value in wanted.items()):
            return store.model_folder(name) / variant["file"]
    return None


@functools.cache
def _scripted_fasterrcnn():
    torch.manual_seed(0)
    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls TorchScript deprecated, once per call
        return torch.jit.script(detection.without_resizing(model))


def prepare(name: str):
    """What can be done before the GPU is to be had."""
    if name == "fasterrcnn" and _stored_fasterrcnn() is None:
        _scripted_fasterrcnn()


def _fasterrcnn(device: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if (file := _stored_fasterrcnn()) is not None:
            script = torch.jit.load(str(file), map_location=device)
        else:
            script = torch.jit.freeze(_scripted_fasterrcnn().to(device))
    return script, torch.rand(3, *((720, 1280) if _on_gpu(device) else (64, 96)))


CRITICAL = {
    "resnet50": lambda device: _classifier("resnet50", 1, device),
    "bert": lambda device: _bert(1, 128, device),
    "fasterrcnn": _fasterrcnn,
}
BEST_EFFORT = {
    "resnet152": lambda device: Inference(*_classifier("resnet152", 256, device), device),
    "resnet152-graph": lambda device: Replay(*_classifier("resnet152", 256, device), device),
    "training": lambda device: Training(device),
    "bert": lambda device: Inference(*_bert(8, 512, device), device),
}


def _warm_up(compute, stream):
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            compute()
            stream.synchronize()
            time.sleep(_LOOK_S)


def _captured(compute, stream):
    """compute() as one CUDA graph, and its output, which must be kept as long."""
    stream.wait_stream(torch.cuda.current_stream())
    _warm_up(compute, stream)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = compute()
    torch.cuda.synchronize()
    return graph, output


class CriticalWork:
    """Called for each job: copies the input to the GPU, runs the model, waits for it. Expects to be
    built and called in inference mode."""

    def __init__(self, name: str, device: str):
        use(device)
        self._gpu = _on_gpu(device)
        model, host = CRITICAL[name](device)
        self._host = host.pin_memory() if self._gpu else host
        self._input = self._host.to(device)
        single = name == "fasterrcnn"
        self._compute = lambda: model([self._input]) if single else model(self._input)
        self._stream = torch.cuda.current_stream() if self._gpu else None
        if self._gpu and name != "fasterrcnn":  # which copies to the host in its middle
            self._graph, self._output = _captured(self._compute, torch.cuda.Stream())
            self._compute = self._graph.replay

    def __call__(self):
        self._input.copy_(self._host, non_blocking=True)
        self._compute()
        if self._stream:
            self._stream.synchronize()


class Inference:
    """Called for each job: launches the model on an input that is on the GPU."""

    ahead = 8  # jobs: what the driver's queue of about 1000 launches holds is never more

    def __init__(self, model, host, device: str):
        self._gpu = _on_gpu(device)
        self._model = model
        self._input = host.to(device)
        self._start()

    def _start(self):
        for _ in range(_WARM_UPS if self._gpu else 1):
            self()
        if self._gpu:
            torch.cuda.synchronize()

    @torch.inference_mode()
    def __call__(self):
        self._model(self._input)

    def capture(self):
        """Nothing to do for work that is launched anew each time."""


class Replay(Inference):
    """The same as one CUDA graph."""

    ahead = 2  # whole graphs: enough for the GPU never to wait

    def _start(self):
        self._graph = None
        self._stream = torch.cuda.Stream() if self._gpu else None
        self.capture()

    @torch.inference_mode()
    def __call__(self):
        if self._graph is None:
            self._model(self._input)
        else:
            self._graph.replay()

    @torch.inference_mode()
    def capture(self):
        """Again: a captured graph carries the waits of the policy that it was captured under."""
        if not self._gpu:
            return
        torch.cuda.synchronize()
        if self._graph is not None:
            self._graph.reset()
            self._graph = self._output = None
        self._graph, self._output = _captured(lambda: self._model(self._input), self._stream)


class Training(Inference):
    """A step of mixed-precision training each time, on one batch that is on the GPU."""

    def __init__(self, device: str):
        self._device = torch.device(device)
        model, host = _classifier("resnet50", 64, device)
        self._labels = torch.randint(1000, (host.shape[0],)).to(device)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        self._criterion = torch.nn.CrossEntropyLoss()
        super().__init__(model, host, device)

    def _start(self):
        self._model.train()
        super()._start()

    def __call__(self):
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._device.type, dtype=torch.bfloat16):
            loss = self._criterion(self._model(self._input), self._labels)
        loss.backward()
        self._optimizer.step()


def best_effort_work(name: str, device: str):
    use(device)
    return BEST_EFFORT[name](device)
