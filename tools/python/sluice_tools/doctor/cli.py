"""The command line of `sluice doctor`."""

import argparse
import dataclasses
import json
import os
import re
from pathlib import Path

from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FAILED, EXIT_FINE, Parser
from sluice_tools.doctor.checks import CHECKS, PROBLEM, Finding, Surroundings, default_session
from sluice_tools.doctor.slices import answer_for, slices

# As base/session.cpp has it.
_SESSION = r"(?!\.)[A-Za-z0-9_.-]{1,32}(?<!\.)"
_SESSION_FORM = "1 to 32 of A-Z a-z 0-9 _ - and inner dots"
_EXAMPLES = """\
examples:
  sluice doctor
  sluice doctor --slices
  sluice doctor --json | jq '.[] | select(.level != "ok")'

docs/reference/doctor.md has all checks.
exit codes: 0 no problem; 1 a problem; 2 wrong usage
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice doctor",
        description="Check what Sluice needs on this machine, for this user and in this shell, and say what to do.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--gpu", choices=("real", "sim"), default="real", help="sim: the simulated GPU (default: real)")
    parser.add_argument(
        "--session",
        default=os.environ.get("SLUICE_SESSION") or "",
        metavar="NAME",
        help="the session (default: $SLUICE_SESSION, else node if there is a node service, else default)",
    )
    parser.add_argument(
        "--slices",
        action="store_true",
        help="also try whether the GPU obeys time slices: about 15 s, with programs of our own, on a GPU that is idle",
    )
    parser.add_argument(
        "--only-slices",
        metavar="UUID",
        help="only try the GPU with this UUID, and print the answer as JSON; the controller uses it",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def text_of(findings: list[Finding]) -> str:
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<8} {finding.check:<12} {finding.said}")
        if finding.todo:
            lines.append(f"{'':<8} do: {finding.todo}")
    return "\n".join(lines)


def examine(about: Surroundings) -> list[Finding]:
    return [finding for check in CHECKS for finding in check(about)]


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.session and not re.fullmatch(_SESSION, options.session):
        parser.error(f"--session: '{options.session}' cannot name a session: {_SESSION_FORM}")

    def job() -> int:
        program = Path(os.environ["SLUICE_PROGRAM"]).resolve()
        if options.only_slices:
            about = Surroundings(program, os.environ, gpu=options.gpu)
            print(json.dumps(answer_for(about, options.only_slices)))
            return EXIT_FINE
        session = options.session or default_session(program, os.environ)
        about = Surroundings(program, os.environ, session, options.gpu)
        findings = examine(about) + (list(slices(about)) if options.slices else [])
        if options.json:
            print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
        else:
            print(text_of(findings))
        return EXIT_FAILED if any(finding.level == PROBLEM for finding in findings) else EXIT_FINE

    return run_command("doctor", job)
