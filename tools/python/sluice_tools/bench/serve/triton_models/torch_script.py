"""A TorchScript model in tritonserver's Python backend, as fast as PyTorch runs it: on a GPU as a CUDA graph for each
batch size, with pinned memory between. Parameters: `file`, `device` (cuda or cpu)."""

import json

import torch
import triton_python_backend_utils as triton  # pyright: ignore[reportMissingImports]

_WARM_UP = 4  # runs of each batch size: TorchScript optimises in the first ones


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self._device = torch.device(parameters["device"])
        self._names = config["input"][0]["name"], config["output"][0]["name"]
        most = config["max_batch_size"]
        shape = [most, *map(int, config["input"][0]["dims"])]
        on_gpu = self._device.type == "cuda"
        self._host = torch.zeros(shape, pin_memory=on_gpu)
        self._input = torch.zeros(shape, device=self._device) if on_gpu else self._host
        with torch.inference_mode():
            self._model = torch.jit.load(parameters["file"], map_location=self._device).eval()
            self._runs = [self._capture(items) if on_gpu else self._eager(items) for items in range(1, most + 1)]

    def _eager(self, items):
        def run():
            return self._model(self._input[:items])

        for _ in range(_WARM_UP):
            run()
        return run

    def _capture(self, items):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            self._eager(items)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            output = self._model(self._input[:items])

        def run():
            self._input[:items].copy_(self._host[:items], non_blocking=True)
            graph.replay()
            return output

        return run

    def execute(self, requests):
        items = 0
        counts = []
        for request in requests:
            values = torch.from_numpy(triton.get_input_tensor_by_name(request, self._names[0]).as_numpy())
            self._host[items : items + len(values)].copy_(values)
            counts.append(len(values))
            items += len(values)
        with torch.inference_mode():
            outputs = self._runs[items - 1]().cpu().split(counts)
        return [triton.InferenceResponse([triton.Tensor(self._names[1], part.numpy())]) for part in outputs]
