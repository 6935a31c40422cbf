"""`sluice models import`: a tensor goes to the argument of its name. Inputs of one type and one shape that
change places give no error, only wrong answers."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import user_models
from sluice_tools.models import aoti, importing
from test_import import package_file
from torch.utils import _pytree
from user_models import script

TOKENS = {name: torch.tensor([[k, k + 3], [k + 5, k + 1]]) for k, name in enumerate("abc", 1)}
KINDS = ["Ordered", "Gaps", "KeywordOnly", "PositionOnly", "Kwargs", "OnlyKwargs", "Wrapped"]


def served(models, name: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """What the server computes: it brings the tensors into the order of model.json, and passes them by position."""
    variant = models.model(name)["variants"][0]
    stored = torch.jit.load(str(models.store / name / variant["file"]))
    return stored(*[tensors[entry["name"]] for entry in variant["inputs"]])


def by_name(model: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """PyTorch's own rule. Arguments that are only positional cannot have a name."""
    module = getattr(user_models, model)()
    return module.sum(**tensors) if model == "PositionOnly" else module(**tensors)


def checkpoint(folder: Path, model: str) -> list[str]:
    torch.save(getattr(user_models, model)().state_dict(), folder / "weights.pth")
    return [str(folder / "weights.pth"), "--class", f"user_models:{model}"]


def file_of(folder: Path, model: str, form: str) -> list[str]:
    if form == "checkpoint":
        return checkpoint(folder, model)
    module, path = getattr(user_models, model)().eval(), folder / "model.pt"
    if form == "traced":
        torch.jit.save(torch.jit.trace(module, tuple(TOKENS.values())), str(path))
        return [str(path)]
    return [str(script(path, module))]


@pytest.mark.parametrize("order", ["".join(order) for order in itertools.permutations("abc")])
@pytest.mark.parametrize("form", [f"checkpoint {kind}" for kind in KINDS] + ["scripted Ordered", "traced Ordered"])
def test_a_dictionary_goes_by_name_in_any_order(tmp_path, models, form, order):
    how, model = form.split()
    torch.save({name: TOKENS[name] for name in order}, tmp_path / "example.pt")
    file = file_of(tmp_path, model, how)
    code, _, err = models("import", "net", *file, "--example", str(tmp_path / "example.pt"))
    assert code == 0, err
    torch.testing.assert_close(served(models, "net", TOKENS).float(), by_name(model, TOKENS).float())


@pytest.mark.parametrize("form", ["checkpoint Ordered", "checkpoint Kwargs", "scripted Gaps", "checkpoint Gaps"])
def test_inputs_with_the_names_of_forward_go_by_name(tmp_path, models, form):
    how, model = form.split()
    inputs = [part for name in "cab" for part in ("--input", f"{name}:INT64:2")]
    if model == "Kwargs":  # of which only one argument has a name
        inputs = inputs[2:] + inputs[:2]
    code, _, err = models("import", "net", *file_of(tmp_path, model, how), *inputs)
    assert code == 0, err
    wanted = by_name(model, TOKENS)
    torch.testing.assert_close(served(models, "net", TOKENS).float(), wanted.float())


@pytest.mark.parametrize("form", ["scripted Gaps", "checkpoint Gaps"])
@pytest.mark.parametrize("names", ["ac", "ca", "a", "ab", "cba"])
def test_arguments_that_are_left_keep_their_place_and_their_default(tmp_path, models, form, names):
    """By position, the mask of (ids, types, mask) would be the types."""
    how, model = form.split()
    tensors = {name: TOKENS[name] for name in names}
    torch.save(tensors, tmp_path / "example.pt")
    code, _, err = models("import", "net", *file_of(tmp_path, model, how), "--example", str(tmp_path / "example.pt"))
    assert code == 0, err
    torch.testing.assert_close(served(models, "net", tensors).float(), by_name(model, tensors).float())


def test_a_list_is_in_the_order_of_forward(tmp_path, models):
    """*args have no names; the server has one for each."""
    torch.save(list(TOKENS.values()), tmp_path / "example.pt")
    for model, names in (("Ordered", ["a", "b", "c"]), ("OnlyKwargs", ["INPUT__0", "INPUT__1", "INPUT__2"])):
        example = ["--example", str(tmp_path / "example.pt")]
        code, _, err = models("import", model, *checkpoint(tmp_path, model), *example)
        assert code == 0, err
        assert [entry["name"] for entry in models.model(model)["variants"][0]["inputs"]] == names
        found = served(models, model, dict(zip(names, TOKENS.values())))
        torch.testing.assert_close(found.float(), by_name("Ordered", TOKENS).float())


@pytest.mark.parametrize(
    ("model", "keys", "inputs", "said"),
    [
        ("Ordered", ["a", "b", "mask"], [], "has no argument 'mask'; it has a, b, c"),
        ("Ordered", ["x"], [], "has no argument 'x'"),
        ("Ordered", ["a", "b"], [], "'c'"),
        ("Ordered", [], ["b", "x", "y"], "--input b: forward() has this argument at another place"),
        ("Ordered", [], ["x", "y", "a"], "--input a: forward() has this argument at another place"),
        ("Ordered", [], ["w", "x", "y", "z"], "forward() takes 3 arguments, not 4"),
        ("Ordered", None, ["c", "b", "a"], "is a list, so give each --input in the order of forward(): a, b, c"),
    ],
)
def test_what_has_no_certain_argument_is_refused(tmp_path, models, model, keys, inputs, said):
    ones = torch.ones(2, 2, dtype=torch.int64)
    torch.save([ones] * 3 if keys is None else dict.fromkeys(keys, ones), tmp_path / "example.pt")
    arguments = [part for name in inputs for part in ("--input", f"{name}:INT64:2")]
    arguments += ["--example", str(tmp_path / "example.pt")] if keys != [] else []
    code, out, err = models("import", "net", *checkpoint(tmp_path, model), *arguments)
    assert code in (1, 2) and out == "" and "Traceback" not in err
    assert said in err.strip().splitlines()[-1], err
    assert not list(models.store.glob("*"))


@pytest.mark.parametrize("model", ["Ordered", "Kwargs"])
@pytest.mark.parametrize("places", [(1, 0, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_a_file_that_takes_its_inputs_in_another_order_is_not_stored(tmp_path, models, monkeypatch, model, places):
    """The proof after import, whatever made the file wrong. The example is of ones, which hides it."""
    write = importing._write_script

    def change_places(made, *others):
        inputs = list(made.graph.inputs())[1:]
        stand_ins = [made.graph.addInput() for _ in inputs]
        for value, stand_in in zip(inputs, stand_ins):
            stand_in.setType(value.type())
            value.replaceAllUsesWith(stand_in)
        for place, stand_in in zip(places, stand_ins):
            stand_in.replaceAllUsesWith(inputs[place])
        for _ in stand_ins:
            made.graph.eraseInput(len(inputs) + 1)
        return write(made, *others)

    monkeypatch.setattr(importing, "_write_script", change_places)
    torch.save({name: torch.ones(2, 2, dtype=torch.int64) for name in "abc"}, tmp_path / "example.pt")
    example = ["--example", str(tmp_path / "example.pt")]
    line = models.refused(1, "import", "net", *checkpoint(tmp_path, model), *example)
    assert "computes something else" in line
    assert not list(models.store.glob("*"))


class KeywordPackage:
    """Stands in for a package that was exported with keyword arguments in another order than forward()'s."""

    def __init__(self):
        spec = _pytree.tree_structure(((1,), {"c": 1, "b": 1}))
        self.loader = SimpleNamespace(
            get_metadata=lambda: {"AOTI_DEVICE_KEY": "cpu"}, get_call_spec=lambda: [_pytree.treespec_dumps(spec), ""]
        )

    def __call__(self, first, *, b, c):
        return first + 10 * b + 100 * c


@pytest.mark.parametrize("order", ["abc", "cba", "bac"])
def test_a_package_gets_its_keyword_arguments_in_its_own_order(tmp_path, models, monkeypatch, order):
    """The server passes tensors as the package has them flat: the first one, then c, then b."""
    monkeypatch.setattr(aoti, "load_package", lambda _path: KeywordPackage())
    names = {"a": "INPUT__0", "b": "b", "c": "c"}
    file, example = package_file(tmp_path), tmp_path / "example.pt"
    torch.save({names[name]: TOKENS[name] for name in order}, example)
    code, _, err = models("import", "net", file, "--example", str(example))
    assert code == 0, err
    assert [entry["name"] for entry in models.model("net")["variants"][0]["inputs"]] == ["INPUT__0", "c", "b"]
    torch.save(TOKENS, example)
    line = models.refused(2, "import", "other", file, "--example", str(example))
    assert "no argument 'a'; it has INPUT__0, c, b" in line
