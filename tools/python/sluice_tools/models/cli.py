"""The command line of `sluice models`. Imports torch only to export, because the import takes seconds."""

import argparse
import importlib.util
import json
import re
import signal
import sys
import time
from pathlib import Path

from sluice_tools.common import child
from sluice_tools.common.command import how_to_get, run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, run_error, usage_error
from sluice_tools.models import names, report, tensor_specs
from sluice_tools.models.store import Store, default_store

_EXAMPLES = """\
examples:
  sluice models export fasterrcnn_resnet50_fpn resnet50 resnet152
  sluice models export resnet50 --format aoti --batch 8
  sluice models export resnet50 --weights resnet50.pth
  sluice models export bert_large --sequence 128 --dtype bfloat16
  sluice models export resnet50 bert_base --train
  sluice models import ranker ranker.pt --input user:INT64: --input features:FP32:16
  sluice models list

Exit codes: 0; 1 a model cannot be exported; 2 wrong usage, no such model, or packages missing.
"""


def _whole(low: int, high: int):
    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number {low}-{high}")
        return int(text)

    return read


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice models",
        description="Put PyTorch models into the store of `sluice run`, `serve`, `split` and `train`.",
        epilog=_EXAMPLES,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_export(commands)
    _add_import(commands)
    listing = commands.add_parser("list", help="the models in the store")
    listing.add_argument("--available", action="store_true", help="instead, the names that export knows")
    show = commands.add_parser("show", help="everything about one model in the store")
    show.add_argument("name", metavar="NAME")
    for command in commands.choices.values():
        command.add_argument(
            "--store",
            metavar="DIR",
            help="the model store (default: $SLUICE_MODELS, else ~/.local/share/sluice/models)",
        )
        command.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_export(commands) -> None:
    export = commands.add_parser(
        "export",
        help="build a model, convert it, put it into the store",
        description="Build models, convert them and put them into the store. Weights are random "
        "with a fixed seed unless --weights names a file; nothing is downloaded.",
        epilog=_EXAMPLES,
    )
    add = export.add_argument
    add(
        "names",
        metavar="NAME",
        nargs="+",
        help="a torchvision model by its registry name, or bert_large, bert_base, bert_tiny",
    )
    add(
        "--format",
        choices=("torchscript", "aoti"),
        default="torchscript",
        help="torchscript (default): any batch, any device; aoti: compiled for one of each",
    )
    add("--train", action="store_true", help="instead, a file for `sluice train` (classification and text models)")
    add("--batch", type=_whole(1, 65536), metavar="N", help="batch of an aoti package (default 1)")
    add("--device", choices=("cuda", "cpu"), help="device of an aoti package (default: cuda where there is a GPU)")
    add("--weights", type=Path, metavar="FILE", help="a saved state_dict of the model")
    add("--classes", type=_whole(1, 10**6), metavar="N", help="classes of the model (default: its usual ones)")
    add("--seed", type=_whole(0, 2**31 - 1), metavar="N", help="of random weights (default 0)")
    add(
        "--size",
        type=_whole(1, 16384),
        nargs=2,
        metavar=("H", "W"),
        help="input size of a classification or segmentation model (default: its usual one)",
    )
    add(
        "--sequence",
        type=_whole(1, 512),
        metavar="S",
        default=128,
        help="input length of a text model, in tokens (default 128)",
    )
    add(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="of weights and computation (default float32)",
    )
    add(
        "--force",
        action="store_true",
        help="export again what is there; replace a model of other weights or another torch",
    )


def _add_import(commands) -> None:
    command = commands.add_parser(
        "import",
        help="put a model of your own into the store, for `serve` and `split`",
        description="Put a TorchScript file, an AOTInductor package or a checkpoint into the store. The "
        "model runs once before, so one that cannot be served is refused.",
    )
    add = command.add_argument
    add("name", metavar="NAME", help="its name in the store, and for clients")
    add("file", metavar="FILE", type=Path)
    add(
        "--class",
        dest="maker",
        metavar="MODULE:CALLABLE",
        help="of a checkpoint: what makes the module; this code is run",
    )
    add(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        metavar="NAME:TYPE:SHAPE",
        help="an argument of forward(), such as image:FP32:3x224x224, ids:INT64:any or user:INT64:; "
        "the shape of one item",
    )
    add("--example", type=Path, metavar="FILE", help="saved tensors, by name or in a list: inputs to run the model on")
    add(
        "--output",
        dest="outputs",
        action="append",
        default=[],
        metavar="NAME[:SHAPE]",
        help="the name of an output (default: its key, or OUTPUT__0, ...)",
    )
    add("--no-batch", action="store_true", help="the tensors have no batch dimension: each request runs alone")
    add("--force", action="store_true", help="replace a model of this name")


def _import_torch():
    try:
        import torch  # noqa: F401
        import torchvision  # noqa: F401
    except ImportError as error:
        raise usage_error(
            f"{sys.executable} lacks torch 2.11.0 or torchvision 0.26.0 ({error}): "
            f"{how_to_get('torch==2.11.0', 'torchvision==0.26.0')}"
        ) from error


def _export(args, store: Store) -> None:
    if args.weights and len(args.names) > 1:
        raise usage_error(f"--weights is for one model, found {len(args.names)} names")
    if args.weights and args.seed is not None:
        raise usage_error("--weights and --seed exclude each other")
    if args.train and args.format == "aoti":
        raise usage_error("--train and --format aoti exclude each other")
    if args.format == "torchscript" and (args.batch or args.device):
        option = "--batch" if args.batch else "--device"
        raise usage_error(f"{option} is for --format aoti: a torchscript file takes any batch on any device")
    if importlib.util.find_spec("torchvision") is not None:
        for name in args.names:
            names.task_of(name)
    _import_torch()
    from sluice_tools.models import export

    request = export.Request(
        format="training" if args.train else args.format,
        batch=args.batch or 1,
        device=args.device,
        weights=args.weights,
        seed=args.seed or 0,
        size=args.size,
        sequence=args.sequence,
        dtype=args.dtype,
        force=args.force,
        classes=args.classes,
    )
    export.require_possible(args.names, request)
    store.require_writable()
    results = []
    for name in args.names:
        results.append(export.export(name, request, store))
        if not args.json:
            report.print_result(results[-1])
    if args.json:
        print(json.dumps(results, indent=2))


def _import(args, store: Store) -> None:
    inputs = tensor_specs.parse_inputs(args.inputs)
    outputs = tensor_specs.parse_outputs(args.outputs)
    store.model_folder(args.name)  # says if that is no name
    _import_torch()
    from sluice_tools.models import importing

    store.require_writable()
    request = importing.Request(
        args.file, args.maker, inputs, args.example, outputs, batched=not args.no_batch, force=args.force
    )
    result = importing.import_model(args.name, request, store)
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        report.print_result(result)


def _list(args, store: Store) -> None:
    if args.available:
        if importlib.util.find_spec("torchvision") is None:
            _import_torch()  # says what to do
        report.print_available(names.tasks(), args.json)
    else:
        report.print_list(store, args.json)


def _show(args, store: Store) -> None:
    if store.read(args.name) is None:
        raise usage_error(f"no model '{args.name}' in {store.folder}; sluice models export {args.name} makes it")
    report.print_model(store, args.name, args.json)


class _Interrupt:
    """A terminal's Ctrl-C may come twice: from the terminal, and passed on by the parent. The second one must not end
    the cleaning up; one that comes later does."""

    _BURST_S = 2.0

    def __init__(self):
        self._since = -self._BURST_S

    def __call__(self, _signal, _frame):
        before, self._since = self._since, time.monotonic()
        if self._since - before >= self._BURST_S:
            raise KeyboardInterrupt


def _store(args) -> Store:
    return Store(Path(args.store) if args.store else default_store())


def _run(args, in_child: bool) -> int:
    """in_child: the process ends after this."""
    interrupt = _Interrupt()
    signal.signal(signal.SIGTERM, interrupt)  # says the same as Ctrl-C; run_command() takes it back
    before = signal.getsignal(signal.SIGINT)
    if before != signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    store = _store(args)
    try:
        {"export": _export, "import": _import, "list": _list, "show": _show}[args.command](args, store)
        return EXIT_FINE
    except KeyboardInterrupt:
        print("sluice models: interrupted; nothing was left in the store", file=sys.stderr)
        return 130
    finally:
        if in_child:  # a second Ctrl-C that comes now must not change how it ends
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        signal.signal(signal.SIGINT, before)


def main(argv: list[str] | None = None, in_child: bool = False) -> int:
    """in_child: export and import are done by a child, whose end by a signal is an error like others."""
    args = _parser().parse_args(argv)

    in_child = in_child and args.command in ("export", "import")

    def work() -> int:
        return run_command("models", lambda: _run(args, in_child))

    if not in_child:
        return work()
    code = child.run(work)
    return code if code >= 0 else run_command("models", lambda: _ended_by(-code, args))


def _ended_by(number: int, args) -> int:
    _store(args).remove_abandoned()
    hint = ", as the kernel does if memory is short" if number == signal.SIGKILL else ""
    raise run_error(
        f"the {args.command} was ended by {signal.Signals(number).name}{hint}; nothing was left in the store"
    )
