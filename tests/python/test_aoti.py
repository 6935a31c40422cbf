"""AOTInductor itself. Its compiler takes half a minute: only on request."""

import os

import pytest
import torch
from user_models import Ranker

WHY = "compiles for half a minute; SLUICE_TEST_AOTI=cpu or cuda runs it"


@pytest.mark.skipif("SLUICE_TEST_AOTI" not in os.environ, reason=WHY)
def test_packages_compute_what_the_torchscript_files_do(models):
    """Nothing else sees that the compiler takes the model and that its package runs."""
    device = os.environ["SLUICE_TEST_AOTI"]
    names = ("bert_tiny", "squeezenet1_1")
    models.export(*names)
    models.export(*names, "--format", "aoti", "--device", device, "--batch", "2")
    for name in names:
        require_equal_results(models, name, device)
    assert sorted(p.name for p in models.store.iterdir()) == sorted(names)


def require_equal_results(models, name, device):
    script, package = models.model(name)["variants"]
    assert (package["device"], package["batch"]) == (device, 2)
    folder = models.store / name
    inputs = torch.rand(2, 3, 224, 224, device=device)
    if name == "bert_tiny":
        inputs = torch.randint(30522, (2, 128), device=device)
    with torch.inference_mode():
        wanted = torch.jit.load(folder / script["file"], map_location=device)(inputs)
        found = torch._inductor.aoti_load_package(str(folder / package["file"]))(inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-3)


@pytest.mark.skipif("SLUICE_TEST_AOTI" not in os.environ, reason=WHY)
def test_a_package_is_imported_only_with_what_it_takes(tmp_path, models):
    """By itself a package reads INT32 as INT64, and rows that are not there."""
    device = os.environ["SLUICE_TEST_AOTI"]
    ids, features = torch.ones(2, dtype=torch.int64, device=device), torch.rand(2, 4, device=device)
    program = torch.export.export(Ranker().eval().to(device), (ids, ids, features))
    file, example = str(tmp_path / "ranker.pt2"), str(tmp_path / "example.pt")
    torch._inductor.aoti_compile_and_package(program, package_path=file)
    for tensors, said in (
        ((ids.int(), ids.int(), features), "unmatched dtype"),
        ((ids.repeat(2), ids.repeat(2), features.repeat(2, 1)), "unmatched dim value"),
        ((ids, ids, features.repeat(1, 2)), "unmatched dim value"),
    ):
        torch.save(list(tensors), example)
        assert said in models.refused(1, "import", "ranker", file, "--example", example)
    torch.save([ids, ids, features], example)
    code, _, err = models("import", "ranker", file, "--example", example)
    assert code == 0, err
    assert [entry["shape"] for entry in models.model("ranker")["variants"][0]["inputs"]] == [[], [], [4]]
