"""A model of tritonserver's Python backend that answers with its input."""

import triton_python_backend_utils as triton  # pyright: ignore[reportMissingImports]


class TritonPythonModel:
    def execute(self, requests):
        return [_answer(request) for request in requests]


def _answer(request):
    values = triton.get_input_tensor_by_name(request, "INPUT0").as_numpy()
    return triton.InferenceResponse([triton.Tensor("OUTPUT0", values)])
