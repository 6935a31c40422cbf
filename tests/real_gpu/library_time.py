"""Time of a network at batch 1 in PyTorch, as a CUDA graph: fp32 without TF32, eager operators of cuDNN and cuBLAS.

PYTHONPATH=tools/python library_time.py resnet-18|resnet-50|mobilenet|bert_base
"""

import json
import statistics
import sys

import torch
import torchvision
from sluice_tools.models import encoder, names


def network(name: str) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    if name in names.ENCODERS:
        return encoder.Encoder(*names.ENCODERS[name]), [torch.zeros(1, 128, dtype=torch.int64)]
    makers = {"resnet-18": "resnet18", "resnet-50": "resnet50", "mobilenet": "mobilenet_v2"}
    return getattr(torchvision.models, makers[name])(), [torch.rand(1, 3, 224, 224)]


def main() -> None:
    name = sys.argv[1]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    model, inputs = network(name)
    model, inputs = model.eval().cuda(), [value.cuda() for value in inputs]
    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(3):
            model(*inputs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            model(*inputs)
    times = []
    for _ in range(30):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 10)
    said = {"network": name, "library": "PyTorch, CUDA graph, fp32", "torch": torch.__version__}
    print(json.dumps(said | {"gpu": torch.cuda.get_device_name(), "median_ms": statistics.median(times)}))


main()
