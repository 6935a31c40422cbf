"""An unmodified tritonclient, over gRPC and HTTP, against the protocols of `sluice serve`.

The server behind the protocols is a fake (fake_service.hpp). It counts announcements: the test program fails if
one is not ended exactly once.
"""

import os
import queue
import subprocess

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

TYPES = [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, np.float16]
TYPES += [np.float32, np.float64]


@pytest.fixture(scope="module")
def ports():
    process = subprocess.Popen(
        [os.environ["SLUICE_FAKE_SERVER"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    grpc, http = process.stdout.readline().split()
    yield {"grpc": grpc, "http": http}
    process.stdin.close()
    assert process.wait(30) == 0, process.stdout.read()


class Api:
    """One protocol: its module, and a client."""

    def __init__(self, name, port):
        self.name = name
        self.module = {"grpc": tritonclient.grpc, "http": tritonclient.http}[name]
        options = {"concurrency": 4} if name == "http" else {}
        self.client = self.module.InferenceServerClient(f"127.0.0.1:{port}", **options)

    def input(self, name, values, datatype=None, **options):
        tensor = self.module.InferInput(name, list(values.shape), datatype or np_to_triton_dtype(values.dtype))
        tensor.set_data_from_numpy(values, **options)
        return tensor

    def json(self, answer):
        """An answer as JSON, over both protocols."""
        if self.name == "http":
            return answer
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(answer, preserving_proto_field_name=True)

    def echo(self, values, model="echo", **options):
        return self.client.infer(model, [self.input("IN", values)], **options)


@pytest.fixture(params=["grpc", "http"])
def api(request, ports):
    api = Api(request.param, ports[request.param])
    yield api
    api.client.close()


def status(error):
    """The code of an exception, the same for both protocols."""
    names = {"400": "INVALID_ARGUMENT", "404": "NOT_FOUND", "429": "RESOURCE_EXHAUSTED", "503": "UNAVAILABLE"}
    names |= {"501": "UNIMPLEMENTED"}
    code = error.value.status().removeprefix("StatusCode.")
    return names.get(code, code)


def test_the_server_says_what_it_is(api):
    assert api.client.is_server_live()
    assert api.client.is_server_ready()
    metadata = api.json(api.client.get_server_metadata())
    assert metadata["name"] == "sluice"
    assert set(metadata["extensions"]) == {
        "statistics", "model_configuration", "model_repository", "schedule_policy", "binary_tensor_data"
    }  # fmt: skip


def test_a_model_is_described(api):
    metadata = api.json(api.client.get_model_metadata("add"))
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["INPUT0", "INPUT1"]
    assert [int(size) for size in metadata["inputs"][0]["shape"]] == [-1, 16]
    config = api.json(api.client.get_model_config("add"))
    config = config.get("config", config)
    assert config["max_batch_size"] == 8
    assert config["backend"] == "sluice"
    assert config["input"][0]["data_type"] == "TYPE_INT32"
    with pytest.raises(InferenceServerException) as error:
        api.client.get_model_metadata("none")
    assert status(error) == "NOT_FOUND"


@pytest.mark.parametrize("binary", [True, False])
def test_two_inputs_two_outputs(api, binary):
    options = {} if api.name == "grpc" else {"binary_data": binary}
    a = np.arange(16, dtype=np.int32).reshape(1, 16)
    b = np.full((1, 16), 3, dtype=np.int32)
    outputs = [api.module.InferRequestedOutput(name, **options) for name in ("OUTPUT0", "OUTPUT1")]
    inputs = [api.input("INPUT0", a, **options), api.input("INPUT1", b, **options)]
    result = api.client.infer("add", inputs, outputs=outputs, request_id="seven")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), a + b)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), a - b)
    assert api.json(result.get_response())["id"] == "seven"
    one = api.client.infer("add", inputs, outputs=outputs[:1])
    assert one.as_numpy("OUTPUT1") is None


@pytest.mark.parametrize("type", [*TYPES, np.bool_])
def test_each_type_comes_back_to_the_bit(api, type):
    bits = np.random.default_rng(7).integers(0, 256, size=6 * np.dtype(type).itemsize, dtype=np.uint8)
    values = (bits[:6] % 2 == 1) if type is np.bool_ else bits.view(type)
    values = values.reshape(1, 2, 3)
    answer = api.echo(values).as_numpy("IN")
    assert answer.dtype == values.dtype
    assert answer.tobytes() == values.tobytes()


def test_bf16_comes_back(api):
    values = np.array([[1.5, -2.0]], dtype=ml_dtypes.bfloat16)
    answer = api.client.infer("echo", [api.input("IN", values, datatype="BF16")]).as_numpy("IN")
    np.testing.assert_array_equal(answer.astype(np.float32), values.astype(np.float32))


def test_strings_come_back(api):
    values = np.array(
        [[b"", b"one", "zwei \N{LATIN SMALL LETTER O WITH DIAERESIS}".encode(), b"\xff\x00"]], dtype=np.object_
    )
    assert api.echo(values).as_numpy("IN").tolist() == values.tolist()


def test_types_in_json(ports):
    api = Api("http", ports["http"])
    for values in (np.array([1, -2], np.int64), np.array([1.5, -2], np.float32), np.array([True, False]),
                   np.array(["a", ""], np.object_)):  # fmt: skip
        tensor = api.input("IN", values, binary_data=False)
        output = api.module.InferRequestedOutput("IN", binary_data=False)
        answer = api.client.infer("echo", [tensor], outputs=[output]).as_numpy("IN")
        assert answer.tolist() == values.tolist()


@pytest.mark.parametrize("shape", [(0,), (1, 0, 3), (1, 600, 250)])
def test_shapes(api, shape):
    values = np.random.default_rng(7).random(shape, dtype=np.float32)
    np.testing.assert_array_equal(api.echo(values).as_numpy("IN"), values)


@pytest.mark.parametrize(
    "model, code", [("none", "NOT_FOUND"), ("refusing", "RESOURCE_EXHAUSTED"), ("add", "INVALID_ARGUMENT")]
)
def test_errors(api, model, code):
    with pytest.raises(InferenceServerException) as error:
        api.echo(np.zeros((1, 16), np.int32), model=model)
    assert status(error) == code


def test_a_version_that_is_not_there(api):
    assert api.echo(np.zeros(1, np.int32), model_version="1")
    with pytest.raises(InferenceServerException) as error:
        api.echo(np.zeros(1, np.int32), model_version="2")
    assert status(error) == "NOT_FOUND"


def test_priority_and_timeout_are_taken(api):
    assert api.echo(np.zeros(1, np.int32), priority=1, timeout=1_000_000, parameters={"slo_ms": 20.5})


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_compression(api, name):
    values = np.zeros((1, 10_000), np.float32)
    if api.name == "grpc":
        options = {"compression_algorithm": name}
    else:
        options = {"request_compression_algorithm": name, "response_compression_algorithm": name}
    np.testing.assert_array_equal(api.echo(values, **options).as_numpy("IN"), values)


def test_sequences_are_refused(api):
    with pytest.raises(InferenceServerException) as error:
        api.echo(np.zeros(1, np.int32), sequence_id=7, sequence_start=True)
    assert status(error) == "UNIMPLEMENTED"


def test_many_requests_at_once(api):
    values = [np.full((1, 1000), i, np.int32) for i in range(32)]
    if api.name == "http":
        handles = [api.client.async_infer("slow", [api.input("IN", v)]) for v in values]
        answers = [handle.get_result() for handle in handles]
    else:
        done = queue.Queue()
        for i, v in enumerate(values):
            callback = lambda result, error, i=i: done.put((i, result, error))  # noqa: E731
            api.client.async_infer("slow", [api.input("IN", v)], callback)
        unordered = [done.get(timeout=20) for _ in values]
        assert not any(error for _, _, error in unordered)
        answers = [result for _, result, _ in sorted(unordered, key=lambda entry: entry[0])]
    for v, answer in zip(values, answers, strict=True):
        np.testing.assert_array_equal(answer.as_numpy("IN"), v)


def test_a_client_that_gives_up(ports):
    api = Api("grpc", ports["grpc"])
    with pytest.raises(InferenceServerException) as error:
        api.echo(np.zeros(1, np.int32), model="stuck", client_timeout=0.2)
    assert status(error) == "DEADLINE_EXCEEDED"


def test_load_unload_and_index(api):
    api.client.unload_model("echo")
    assert not api.client.is_model_ready("echo")
    with pytest.raises(InferenceServerException) as error:
        api.echo(np.zeros(1, np.int32))
    assert status(error) == "UNAVAILABLE"
    index = api.json(api.client.get_model_repository_index())
    states = {entry["name"]: entry["state"] for entry in (index if api.name == "http" else index["models"])}
    assert states["echo"] == "UNAVAILABLE"
    assert states["add"] == "READY"
    api.client.load_model("echo")
    assert api.client.is_model_ready("echo")
    with pytest.raises(InferenceServerException) as error:
        api.client.load_model("none")
    assert status(error) == "NOT_FOUND"
    with pytest.raises(InferenceServerException) as error:
        api.client.load_model("echo", config="{}")
    assert status(error) == "UNIMPLEMENTED"


def test_statistics_count(api):
    def successes():
        answer = api.json(api.client.get_inference_statistics("echo"))["model_stats"][0]
        assert answer["version"] == "1"
        return int(answer["inference_stats"]["success"].get("count", 0))

    before = successes()
    api.echo(np.zeros(1, np.int32))
    assert successes() == before + 1
    everything = api.json(api.client.get_inference_statistics())
    assert len(everything["model_stats"]) == 7
    with pytest.raises(InferenceServerException) as error:
        api.client.get_inference_statistics("none")
    assert status(error) == "NOT_FOUND"


def test_streams_and_shared_memory_are_refused(ports):
    api = Api("grpc", ports["grpc"])
    done = queue.Queue()
    api.client.start_stream(lambda result, error: done.put(error))
    error = done.get(timeout=20)
    assert "is not served" in str(error)
    api.client.stop_stream()
    with pytest.raises(InferenceServerException) as refused:
        api.client.get_system_shared_memory_status()
    assert status(refused) == "UNIMPLEMENTED"
    web = Api("http", ports["http"])
    with pytest.raises(InferenceServerException) as refused:
        web.client.get_system_shared_memory_status()
    assert "not served" in str(refused.value)
