"""Exports that work: what is in the store computes what the model computes."""

import warnings
from typing import Any

import pytest
import torch
import torchvision
from sluice_tools.models import catalogue, detection


def test_the_store_is_as_the_runner_reads_it(models):
    """A renamed key would make every run fail with 'not in the store'."""
    models.export("squeezenet1_1", "--size", "64", "64")
    assert models.model("squeezenet1_1") == {
        "name": "squeezenet1_1",
        "task": "classification",
        "weights": {"source": "random", "seed": 0},
        "torch": torch.__version__.split("+")[0],
        "torchvision": torchvision.__version__.split("+")[0],
        "variants": [
            {
                "format": "torchscript",
                "file": "model.pt",
                "input": [3, 64, 64],
                "dtype": "float32",
                "batch": "any",
                "resizes": False,
            }
        ],
    }
    assert sorted(p.name for p in models.store.iterdir()) == ["squeezenet1_1"]


def test_a_file_takes_any_batch_and_keeps_the_weights(models):
    """Tracing at one batch, or building after other random numbers were drawn, would show here."""
    models.export("squeezenet1_1", "--size", "64", "64")
    script = torch.jit.load(models.store / "squeezenet1_1" / "model.pt")
    torch.manual_seed(0)
    own = torchvision.models.squeezenet1_1(weights=None).eval()
    with torch.inference_mode():
        for batch in (1, 2, 5):
            images = torch.rand(batch, 3, 64, 64)
            torch.testing.assert_close(script(images), own(images), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "bert_tiny", "ssdlite320_mobilenet_v3_large"])
def test_the_same_seed_gives_the_same_bits(name):
    """Results of two runs could not be compared otherwise."""
    torch.manual_seed(7)  # what was drawn before may not matter
    first = catalogue.build(name, 0, None, 128).module.state_dict()
    second = catalogue.build(name, 0, None, 128).module.state_dict()
    other = catalogue.build(name, 1, None, 128).module.state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_a_text_model_takes_any_batch_and_length(models):
    models.export("bert_tiny", "--sequence", "16")
    assert models.model("bert_tiny")["variants"][0]["input"] == [16]
    script = torch.jit.load(models.store / "bert_tiny" / "model.pt")
    assert script(torch.zeros(3, 24, dtype=torch.long)).shape == (3, 24, 128)


def test_a_model_whose_scripted_form_returns_something_else_is_traced(models):
    """googlenet scripted returns a tuple of three, of which the worker could make nothing."""
    models.export("googlenet", "--size", "64", "64")
    script = torch.jit.load(models.store / "googlenet" / "model.pt")
    assert script(torch.rand(2, 3, 64, 64)).shape == (2, 1000)


def test_segmentation_in_half_precision(models):
    models.export("lraspp_mobilenet_v3_large", "--size", "64", "64", "--dtype", "bfloat16")
    variant = models.model("lraspp_mobilenet_v3_large")["variants"][0]
    assert (variant["file"], variant["dtype"]) == ("model_bfloat16.pt", "bfloat16")
    script = torch.jit.load(models.store / "lraspp_mobilenet_v3_large" / variant["file"])
    output = script(torch.rand(1, 3, 64, 64, dtype=torch.bfloat16))["out"]
    assert (output.dtype, output.shape) == (torch.bfloat16, (1, 21, 64, 64))


def load_detection(models, name):
    assert [(v["file"], v["resizes"], v["input"]) for v in models.model(name)["variants"]] == [
        ("model.pt", True, [3, 0, 0]),
        ("model_fixed.pt", False, [3, 0, 0]),
    ]
    folder = models.store / name
    return torch.jit.load(folder / "model.pt"), torch.jit.load(folder / "model_fixed.pt")


@torch.inference_mode()
def detect(script, image):
    with warnings.catch_warnings(), torch.jit.optimized_execution(False):
        warnings.simplefilter("ignore")
        return script([image])[1][0]


def require_agreement(resizing, fixed, height, width):
    image = torch.rand(3, height, width, generator=torch.Generator().manual_seed(2))
    one, other = detect(resizing, image), detect(fixed, image)
    assert len(one["boxes"]) > 0
    for key in ("boxes", "labels", "scores"):
        torch.testing.assert_close(one[key], other[key])


def test_both_variants_of_fasterrcnn_agree_where_nothing_is_resized(models, tmp_path):
    """Switching off more than the resizing (normalisation, scaling the boxes back) shows here."""
    name = "fasterrcnn_mobilenet_v3_large_320_fpn"
    state = catalogue.build(name, 0, None, 128).module.state_dict()
    state["roi_heads.box_predictor.cls_score.weight"] *= 100  # random scores are too low for boxes
    torch.save(state, tmp_path / "sure.pth")
    models.export(name, "--weights", str(tmp_path / "sure.pth"))
    require_agreement(*load_detection(models, name), 320, 400)


def test_both_variants_of_ssd_agree_where_nothing_is_resized(models):
    models.export("ssdlite320_mobilenet_v3_large")
    require_agreement(*load_detection(models, "ssdlite320_mobilenet_v3_large"), 320, 320)


def test_the_fixed_variant_keeps_the_size_it_is_given():
    """640x1000 would become 320x500, and 1440x2560 the published 750x1333. Sizes that are no
    multiple of 32 are padded, never scaled."""
    module: Any = catalogue.build("fasterrcnn_mobilenet_v3_large_320_fpn", 0, None, 128).module
    fixed: Any = detection.without_resizing(module)
    for height, width in ((640, 1000), (1440, 2560), (333, 517)):
        images, _ = fixed.transform([torch.full((3, height, width), 0.485)])
        assert images.image_sizes == [(height, width)]
        assert images.tensors.shape[2:] == (-(-height // 32) * 32, -(-width // 32) * 32)
        assert images.tensors[0, 0, height - 1, width - 1].abs() < 1e-6  # normalised
    # The model it was made from still resizes.
    assert module.transform([torch.rand(3, 640, 1000)])[0].image_sizes != [(640, 1000)]


def test_weights_from_a_file(models, tmp_path):
    torch.manual_seed(5)
    trained = torchvision.models.squeezenet1_1(weights=None).eval()
    torch.save(trained.state_dict(), tmp_path / "trained.pth")
    models.export("squeezenet1_1", "--size", "64", "64", "--weights", str(tmp_path / "trained.pth"))
    weights = models.model("squeezenet1_1")["weights"]
    assert weights["source"] == str(tmp_path / "trained.pth")
    assert len(weights["sha256"]) == 64
    images = torch.rand(1, 3, 64, 64)
    script = torch.jit.load(models.store / "squeezenet1_1" / "model.pt")
    with torch.inference_mode():
        torch.testing.assert_close(script(images), trained(images), rtol=1e-3, atol=1e-4)


def test_a_file_to_train_is_next_to_the_others_and_has_parameters(models):
    """`sluice train` would train nothing, or a model without dropout and batch statistics."""
    models.export("mobilenet_v3_small", "--size", "64", "64")
    models.export("mobilenet_v3_small", "--size", "64", "64", "--train")
    found = {variant["format"]: variant for variant in models.model("mobilenet_v3_small")["variants"]}
    assert found["training"]["file"] == "model_train.pt"
    assert found["training"]["input"] == found["torchscript"]["input"] == [3, 64, 64]
    script = torch.jit.load(models.store / "mobilenet_v3_small" / "model_train.pt")
    assert all(parameter.requires_grad for parameter in script.parameters())
    own = torchvision.models.mobilenet_v3_small()
    assert [p.shape for p in script.parameters()] == [p.shape for p in own.parameters()]
    script.train()
    before = [buffer.clone() for buffer in script.buffers()]
    images = torch.rand(4, 3, 64, 64)
    assert not torch.equal(script(images), script(images))
    assert any(not torch.equal(a, b) for a, b in zip(before, script.buffers()))


def test_a_text_model_to_train_predicts_the_next_token(models):
    models.export("bert_tiny", "--sequence", "16", "--train")
    script = torch.jit.load(models.store / "bert_tiny" / "model_train.pt")
    assert dict(script.named_parameters())["encoder.tokens.weight"].shape[0] == catalogue.encoder.VOCABULARY
    ids = torch.randint(1000, (1, 16))
    changed = ids.clone()
    changed[0, 10] = 999 - changed[0, 10]
    with torch.no_grad():
        one, other = script(ids), script(changed)
    assert one.shape == (1, 16, catalogue.encoder.VOCABULARY)
    torch.testing.assert_close(one[:, :10], other[:, :10])
    assert not torch.allclose(one[:, 10:], other[:, 10:])
