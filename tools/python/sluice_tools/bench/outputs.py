"""Whether the outputs of two models are bitwise the same alone and together under the gate."""

from sluice_tools.bench import published
from sluice_tools.measure import experiments

FIELDS = ("pair", "model", "mode", "jobs alone", "jobs together", "outputs alone", "outputs together", "equal")

_CONTROL = {"control": True, "policy": "device:4"}
_PAIRS = {
    "published": [{**published.LOW, "control": _CONTROL}, {**published.HIGH, "sleep_time": 0.1, "control": _CONTROL}],
    "ResNet-152 b64 and ResNet-50, CUDA graphs": [
        {
            "model_name": "resnet152",
            "backend": "torchscript",
            "input_file_path": "synthetic",
            "output_file_name": "A",
            "priority": 0,
            "batch_size": 64,
            "cuda_graph": True,
            "control": _CONTROL,
        },
        {
            "model_name": "resnet50",
            "backend": "torchscript",
            "input_file_path": "synthetic",
            "output_file_name": "B",
            "priority": 1,
            "sleep_time": 0.005,
            "cuda_graph": True,
            "control": _CONTROL,
        },
    ],
}


def _digests(options, folder, models: list, mps: bool) -> dict:
    """Hashes of every job's outputs, by model."""
    how = experiments.How(options.sluice, options.gpu, options.device, options.seconds)
    experiments.run_models(how, folder, {"models": models, "mps": mps}, "--digest")
    return {
        model["output_file_name"]: [
            line.split()[1] for line in (folder / f"{model['output_file_name']}.digest").read_text().splitlines()
        ]
        for model in models
    }


def run(options) -> list:
    rows = []
    for number, (pair, models) in enumerate(_PAIRS.items()):
        for mode in options.modes:
            folder = options.out / "outputs" / f"{number}-{mode}"
            mps = mode == "MPS"
            alone = {}
            for model in models:
                alone |= _digests(options, folder / f"{model['output_file_name']}-alone", [model], mps)
            together = _digests(options, folder / "together", models, mps)
            for model in models:
                name = model["output_file_name"]
                one, other = alone[name], together[name]
                rows.append(
                    {
                        "pair": pair,
                        "model": name,
                        "mode": mode,
                        "jobs alone": len(one),
                        "jobs together": len(other),
                        "outputs alone": len(set(one)),
                        "outputs together": len(set(other)),
                        "equal": bool(one) and set(one) == set(other) and len(set(one)) == 1,
                    }
                )
    return rows


def failures(rows: list) -> list:
    return [f"{row['pair']}, {row['mode']}: the outputs of {row['model']} differ" for row in rows if not row["equal"]]
