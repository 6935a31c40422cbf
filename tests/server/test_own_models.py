"""Models of users, imported and served on the CPU: a BERT-like reader with a mask, a recommender with three inputs, a
detector without a batch dimension."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from serving import SLUICE, in_background, serving

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from user_models import Detector, Masked, Ranker, Reader, script  # noqa: E402

CONFIG = """
reader
  path reader
  batch-size 4
  max-delay-us 300000
ranker
  path ranker
  batch-size 4
masked
  path masked
  batch-size 4
detector
  path detector
  batch-size 0
  blocks 2
"""
INPUTS = {
    "reader": ["--input", "input_ids:INT64:any", "--input", "attention_mask:INT64:any"],
    "masked": ["--input", "input_ids:INT64:any", "--input", "attention_mask:INT64:any"],
    "ranker": ["--input", "user:INT64:", "--input", "item:INT32:", "--input", "features:FP32:4", "--output", "score"],
    "detector": [
        *["--input", "image:FP32:3x8x8", "--input", "size:INT64:2", "--no-batch"],
        *["--output", "boxes:anyx4", "--output", "scores:any"],
    ],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for name, module in (("reader", Reader()), ("ranker", Ranker()), ("detector", Detector())):
        script(folder / f"{name}.pt", module)
    ids = torch.ones(2, 5, dtype=torch.int64)
    torch.jit.save(torch.jit.trace(Masked().eval(), (ids, ids), strict=False), str(folder / "masked.pt"))
    for name in INPUTS:
        command = [SLUICE, "models", "import", name, folder / f"{name}.pt", *INPUTS[name], "--store", folder / "store"]
        subprocess.run(command, check=True, env={**os.environ, "SLUICE_PYTHON": sys.executable})
    split = [SLUICE, "split", "detector", "-c", "2", "--cpu", "-s", "1", "-r", "2", "--store", "store"]
    subprocess.run(split, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    (folder / "models").write_text(CONFIG)
    return folder


@pytest.fixture(scope="module")
def server(store):
    with serving(store, "--config", "models", "--store", "store") as running:
        yield running


def tensor(name: str, value) -> dict:
    datatype = {torch.int64: "INT64", torch.int32: "INT32", torch.float32: "FP32"}[value.dtype]
    return {"name": name, "datatype": datatype, "shape": list(value.shape), "data": value.flatten().tolist()}


def infer(server, model: str, **inputs) -> tuple[int, dict]:
    body = {"inputs": [tensor(name, value) for name, value in inputs.items()]}
    return server.call(f"/v2/models/{model}/infer", body)


def outputs(server, model: str, **inputs) -> dict:
    status, answer = infer(server, model, **inputs)
    assert status == 200, answer
    return {out["name"]: torch.tensor(out["data"]).reshape(out["shape"]) for out in answer["outputs"]}


def model_of(store: Path, name: str):
    return torch.jit.load(str(store / f"{name}.pt"))


def test_a_mask_is_an_input_like_any_other(store, server):
    """Prevents: inputs that are given to the model in the order of the request, or a mask that is lost."""
    ids = torch.tensor([[1, 2, 3, 4, 0], [5, 6, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    found = outputs(server, "reader", attention_mask=mask, input_ids=ids)
    wanted = model_of(store, "reader")(ids, mask)
    for name in ("hidden", "logits"):
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-3, atol=1e-4)


def test_a_trace_runs_on_the_device_of_the_server(store, server):
    """It was made on the CPU. With a GPU, the tensors that it makes must be there."""
    ids, mask = torch.tensor([[1, 2, 3], [5, 6, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    found = outputs(server, "masked", input_ids=ids, attention_mask=mask)
    wanted = model_of(store, "masked")(ids, mask)["pooled"]
    torch.testing.assert_close(found["pooled"], wanted, rtol=1e-3, atol=1e-4)


def test_requests_of_several_inputs_share_a_batch(store, server):
    """Prevents: the inputs of one request in the rows of another one."""
    model = model_of(store, "reader")
    requests = [(torch.tensor([[i, i + 1, i + 2]]), torch.tensor([[1, 1, i % 2]])) for i in range(4)]

    def ask(ids, mask):
        return lambda: outputs(server, "reader", input_ids=ids, attention_mask=mask)

    calls = [in_background(ask(*request)) for request in requests]
    for (thread, results), (ids, mask) in zip(calls, requests, strict=True):
        thread.join()
        torch.testing.assert_close(results[0]["logits"], model(ids, mask)["logits"], rtol=1e-3, atol=1e-4)
    metrics = server.call("/metrics")[1]
    (batches,) = [
        line for line in metrics.splitlines() if line.startswith("nv_inference_exec_count") and 'model="reader"' in line
    ]
    (count,) = [
        line for line in metrics.splitlines() if line.startswith("nv_inference_count") and 'model="reader"' in line
    ]
    assert float(batches.split()[-1]) < float(count.split()[-1]), "every request ran alone"


def test_a_recommender(store, server):
    user, item, features = torch.tensor([3, 4, 5]), torch.tensor([60, 1, 2], dtype=torch.int32), torch.rand(3, 4)
    found = outputs(server, "ranker", user=user, item=item, features=features)
    torch.testing.assert_close(found["score"], model_of(store, "ranker")(user, item, features), rtol=1e-3, atol=1e-4)


def test_a_detector_without_a_batch_dimension(store, server):
    """Prevents: a dimension that the client did not send, or boxes that are cut off."""
    model = model_of(store, "detector")
    for seed in range(3):
        image, size = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(seed)), torch.tensor([480, 640])
        found = outputs(server, "detector", image=image, size=size)
        boxes, scores = model(image, size)
        torch.testing.assert_close(found["boxes"], boxes, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(found["scores"], scores, rtol=1e-3, atol=1e-4)
    metadata = server.call("/v2/models/detector")[1]
    assert metadata["inputs"][0]["shape"] == [3, 8, 8]
    assert metadata["outputs"][0] == {"name": "boxes", "datatype": "FP32", "shape": [-1, 4]}
    assert server.call("/v2/models/detector/config")[1]["max_batch_size"] == 0
    assert server.call("/v2/models/reader")[1]["outputs"][0]["shape"] == [-1, -1, 16]


IDS, MASK = torch.ones(1, 3, dtype=torch.int64), torch.ones(1, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        ("reader", {"input_ids": IDS}, "'attention_mask' is missing"),
        ("reader", {"input_ids": IDS, "attention_mask": MASK, "more": MASK}, "unknown input 'more'"),
        ("reader", {"input_ids": IDS, "attention_mask": torch.cat([MASK, MASK])}, "different batch dimensions"),
        ("reader", {"input_ids": IDS * 100, "attention_mask": MASK}, "found id 100"),
        ("reader", {"input_ids": IDS, "attention_mask": MASK.float()}, "found datatype FP32"),
        (
            "ranker",
            {"user": IDS[0], "item": IDS[0].int() * 70, "features": torch.ones(3, 4)},
            "input 'item': found id 70",
        ),
        ("masked", {"input_ids": IDS * 100, "attention_mask": MASK}, "found id 100"),
        ("reader", {"input_ids": IDS[:, :0], "attention_mask": MASK[:, :0]}, "found shape [1,0], expected [batch,-1]"),
        ("detector", {"image": torch.ones(1, 3, 8, 8), "size": torch.ones(2, dtype=torch.int64)}, "expected [3,8,8]"),
    ],
)
def test_what_does_not_fit_is_refused(server, model, inputs, said):
    status, answer = infer(server, model, **inputs)
    assert status == 400
    assert said in answer["error"]
    assert server.call("/v2/health/ready")[0] == 200


def test_a_batch_dimension_that_does_not_fit_is_refused_at_load(store):
    for text, said in (
        ("detector\n path detector\n batch-size 2", "has no batch dimension"),
        ("ranker\n path ranker\n batch-size 0", "has a batch dimension"),
    ):
        (store / "wrong").write_text(text + "\n")
        with pytest.raises(AssertionError, match=said), serving(store, "--config", "wrong", "--store", "store"):
            pass


def test_text_is_refused(server):
    """No model of the store takes text, and none must take its bytes for numbers."""
    text = {"name": "input_ids", "datatype": "BYTES", "shape": [1, 2], "data": ["two", "words"]}
    status, answer = server.call("/v2/models/reader/infer", {"inputs": [text, tensor("attention_mask", MASK)]})
    assert status == 400
    assert answer["error"].endswith("expected INT64; the model takes numbers, such as token ids, and no text")
