"""verify: whether wheels fit this host, and whether they run here.

exit codes: 0 all passed; 1 something failed or does not fit; 2 wrong usage, or a source that
cannot be read; 3 nothing failed, but a stage had nothing that it could check; 4 two wheelhouses
are equally good
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cuda_wheels.audit.wheelhouse import TAGS, Summary, WheelhouseError, read_summary
from verify import stages
from verify.environment import Environment, torch_facts
from verify.fit import DISK_NEEDED_GB, Choice, detailed, fit, select
from verify.host import UNKNOWN, Gpu, read_host
from verify.install import Origins, install_beside, install_venv
from verify.record import read_record, record
from verify.report import (
    FAILED,
    NOT_RUN,
    PASSED,
    WARNING,
    Line,
    Stage,
    kernel_table,
    stage_json,
    stage_text,
)
from verify.sources import Source, fetch, find, is_address, open_source

SUCCESS, FAILURE, USAGE, UNCHECKED, TIE = 0, 1, 2, 3, 4


class _Usage(Exception):
    """What the user has to change; ends the program with exit code 2."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="verify", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    source_help = (
        "a wheelhouse, a folder of wheelhouses, or an address: that of such a tree (https://), of a "
        "repository of a registry (oci://HOST/NAME) or of a package index (pypi:https://HOST/)"
    )

    def command(name: str, text: str, source: str, environment: bool) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        if source:
            nargs = "?" if source == "optional" else None
            sub.add_argument("source", nargs=nargs, metavar="WHEELHOUSE", help=source_help)
            sub.add_argument("--sha256sums", metavar="SHA256", help="what SHA256SUMS must hash to")
            sub.add_argument(
                "--gpu",
                action="append",
                metavar="CAPABILITY",
                help="choose for this GPU, as 9.0, and not for those that are found; may be repeated",
            )
            sub.add_argument("--download", type=Path, help="where wheelhouses of a server are put")
        sub.add_argument("--python", help="the interpreter that the wheels are for")
        if environment:
            sub.add_argument("--venv", type=Path, help="the venv that the wheels are or will be in")
            sub.add_argument(
                "--in-place",
                action="store_true",
                help="install nothing into --python, which has torch: the wheels lie beside it",
            )
            sub.add_argument("--torch-index", help="where torch comes from; the PyTorch index else")
            sub.add_argument(
                "--find-links", type=Path, help="a folder with all wheels; no index then"
            )
            sub.add_argument(
                "--markdown", action="store_true", help="the kernel checks as a table for documents"
            )
            sub.add_argument(
                "--record", type=Path, help="a file for what ran where, without this host's paths"
            )
        sub.add_argument("--json", action="store_true", help="print JSON instead of tables")
        sub.add_argument("--json-file", type=Path, help="also write the JSON to a file")
        return sub

    command("doctor", "this host, and whether a wheelhouse fits it", "optional", False)
    command("select", "the wheelhouse for this host, and why not the others", "required", False)
    command("check", "whether a wheelhouse agrees with itself", "required", False)
    command("install", "install a wheelhouse into a fresh venv", "required", True)
    command("import", "import each package", "optional", True)
    command(
        "kernels",
        "compare what each package computes on the GPU with plain torch",
        "optional",
        True,
    )
    command("model", "run a small point network of what is installed", "optional", True)
    command("train", "take 20 steps of that network", "optional", True)
    command("all", "all of these, one after the other", "required", True)
    text = "print what --record wrote as tables for documents"
    report = commands.add_parser("report", help=text, description=text)
    report.add_argument("records", nargs="+", type=Path, metavar="FILE")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "report":
            print("\n\n".join(read_record(file).table() for file in arguments.records))
            return SUCCESS
        with ExitStack() as stack:
            return _Run(arguments, stack).run()
    except (WheelhouseError, _Usage) as error:
        print(f"verify: {error}", file=sys.stderr)
        return USAGE


class _Run:
    """One call of the tool."""

    def __init__(self, arguments: argparse.Namespace, stack: ExitStack) -> None:
        self.arguments = arguments
        self.stack = stack
        self.stages: list[Stage] = []
        self.summary: Summary | None = None
        self.folder: Path | None = None
        self.choice: Choice | None = None
        self.facts: dict[str, Any] | None = None
        self.python = self._interpreter()
        at = getattr(arguments, "venv", None) or Path.cwd()
        self.host = read_host(self.python, at)
        if self.host.python == UNKNOWN:
            # A version manager's stand-in, or a venv whose Python is gone.
            raise _Usage(f"{self.python} does not run as a Python. Name one with `--python`.")
        if getattr(arguments, "gpu", None):
            gpus = tuple(Gpu("chosen by --gpu", capability) for capability in arguments.gpu)
            self.host = replace(self.host, gpus=gpus)

    def run(self) -> int:
        command = self.arguments.command
        if command == "check" and self._is_tree():
            for summary in find(self.arguments.source):
                self._add(stages.check(summary, Path(summary.path)))
            return self._end()
        if self._take_source():
            return self._end(TIE)
        if self.choice and self.choice.chosen is None and command != "doctor":
            return self._end()
        if command in ("doctor", "all"):
            judged = fit(self.summary, self.host) if self.summary else None
            self._add(stages.doctor(self.host, judged, DISK_NEEDED_GB))
        if command in ("check", "all") and self.summary and self.folder:
            self._add(stages.check(self.summary, self.folder))
        if command not in ("doctor", "select", "check"):
            self._in_environment()
        return self._end()

    def _in_environment(self) -> None:
        command = self.arguments.command
        environment = self._environment()
        if environment is None:
            return
        if command == "install":
            return
        expected = self.summary.packages if self.summary else ()
        self.facts, _ = torch_facts(environment)
        if command in ("import", "all"):
            self._add(stages.imports(environment, expected))
        if command in ("kernels", "all"):
            self._add(stages.kernels(environment, expected))
        if command in ("model", "all"):
            self._add(stages.model(environment))
        if command in ("train", "all"):
            self._add(stages.train(environment))

    def _environment(self) -> Environment | None:
        """Install where the command says so; None if that failed: nothing runs after it."""
        a = self.arguments
        origins = Origins(a.torch_index, a.find_links.absolute() if a.find_links else None)
        sums = a.sha256sums or (self.summary.sums if self.summary else None)
        if a.in_place:
            if self.folder is None:
                return Environment(self.python)
            target = a.venv or Path(self._scratch()) / "beside"
            if a.venv and a.venv.exists() and any(a.venv.iterdir()):
                raise _Usage(f"{a.venv} is not empty. Name another folder, or remove it.")
            stage, environment = install_beside(self.folder, target, self.python, origins, sums)
            self._add(stage)
            return environment
        if a.command in ("install", "all"):
            if a.command == "install" and a.venv is None:
                raise _Usage("say where with `--venv FOLDER`, or `--in-place`.")
            assert self.folder is not None
            venv = a.venv or Path(self._scratch()) / "venv"
            stage, environment = install_venv(self.folder, venv, self.python, origins, sums)
            self._add(stage)
            return environment
        if a.venv:
            python = a.venv / "bin/python"
            if not python.exists():
                raise _Usage(f"{a.venv} is no venv. `verify install WHEELHOUSE --venv` makes one.")
            return Environment(python.absolute(), isolated=True)
        return Environment(self.python)

    def _take_source(self) -> bool:
        """Find the wheelhouse that is meant, and fetch it; True if two are equally good."""
        source = getattr(self.arguments, "source", None)
        if source is None:
            return False
        command = self.arguments.command
        if not is_address(source) and not self._is_tree() and command != "select":
            self.folder = Path(source)
            self.summary = replace(read_summary(self.folder), sums=self.arguments.sha256sums)
            return False
        server = open_source(source) if is_address(source) else None
        summaries = server.find() if server else find(source)
        if server and server.names_one and command != "select":
            (self.summary,) = summaries
        else:
            self.choice = select(summaries, self.host)
            if server and self.choice.chosen:
                self.choice = detailed(self.choice, self.host, server.describe)
            self._add(_choice_stage(self.choice))
            if self.choice.chosen is None:
                return bool(self.choice.tied)
            self.summary = self.choice.chosen
        if self.arguments.sha256sums:
            self.summary = replace(self.summary, sums=self.arguments.sha256sums)
        if server is None:
            self.folder = Path(self.summary.path)
        elif self.arguments.download or command not in ("select", "doctor"):
            self._fetch(server, self.summary)
        return False

    def _fetch(self, server: Source, summary: Summary) -> None:
        into = self.arguments.download or Path(self._scratch())
        self.folder = fetch(server, summary, into, lambda text: print(text, file=sys.stderr))
        # The folder has what an index leaves out: packages, and which are skipped.
        self.summary = replace(read_summary(self.folder), sums=summary.sums)

    def _is_tree(self) -> bool:
        """Whether the source is a folder, but itself no wheelhouse."""
        source = self.arguments.source
        return not is_address(source) and not (Path(source) / TAGS).is_file()

    def _interpreter(self) -> Path:
        """`--python`, or that of the venv, or the one that runs this tool."""
        named = self.arguments.python
        if named is None:
            venv = getattr(self.arguments, "venv", None)
            own = venv / "bin/python" if venv else None
            return own.absolute() if own and own.exists() else Path(sys.executable)
        found = shutil.which(named)
        if found is None:
            raise _Usage(f"`--python {named}` is no program that can be run.")
        return Path(found).absolute()

    def _scratch(self) -> str:
        return self.stack.enter_context(tempfile.TemporaryDirectory(prefix="verify-"))

    def _add(self, stage: Stage) -> None:
        self.stages.append(stage)
        # A long run shows how far it is; a short one ends with the same line at once.
        if self.arguments.command == "all":
            print(f"{stage.name}: {stage.verdict}", file=sys.stderr, flush=True)

    def _end(self, code: int | None = None) -> int:
        verdicts = {stage.verdict for stage in self.stages}
        if code is None:
            code = FAILURE if FAILED in verdicts else UNCHECKED if NOT_RUN in verdicts else SUCCESS
        document = self._document(code)
        text = json.dumps(document, indent=1, sort_keys=True)
        if self.arguments.json_file:
            self.arguments.json_file.write_text(text + "\n")
        if getattr(self.arguments, "record", None):
            today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
            kept = json.dumps(record(document, today), indent=1, sort_keys=True)
            self.arguments.record.write_text(kept + "\n")
        if self.arguments.json:
            print(text)
            return code
        print("\n\n".join(stage_text(stage) for stage in self.stages))
        if getattr(self.arguments, "markdown", False):
            lines = [
                line for stage in self.stages if stage.name == "kernels" for line in stage.lines
            ]
            unknown = {
                "device": "no GPU",
                "capability": "none",
                "torch": "unknown",
                "python": "unknown",
            }
            known = {k: v for k, v in (self.facts or {}).items() if v is not None}
            print()
            print(kernel_table({**unknown, "driver": self.host.driver or "none", **known}, lines))
        return code

    def _document(self, code: int) -> dict[str, Any]:
        summary = self.summary
        return {
            "schema": 1,
            "exit_code": code,
            "host": asdict(self.host),
            "torch": self.facts,
            "wheelhouse": (
                {
                    "path": summary.path,
                    "tags": {**asdict(summary.tags), "cuda_arch": " ".join(summary.tags.cuda_arch)},
                    "date": summary.date,
                    "sha256sums": summary.sums,
                }
                if summary
                else None
            ),
            "stages": [stage_json(stage) for stage in self.stages],
        }


def _choice_stage(choice: Choice) -> Stage:
    """Every wheelhouse that was looked at: chosen, rejected with each reason, or older."""
    lines = []
    for one in choice.fits:
        if one.summary == choice.chosen:
            lines.append(Line(one.summary.path, "chosen", PASSED, "\n".join(one.conditions)))
        elif one.summary in choice.tied:
            text = "It is as good as another: remove one, or name the one to use."
            lines.append(Line(one.summary.path, "tied", FAILED, text))
        elif one.fits:
            text = "It fits, but another has a newer accelerator, torch or date."
            lines.append(Line(one.summary.path, "fits", NOT_RUN, text))
        else:
            # To reject one is no failure where another is chosen.
            verdict = WARNING if choice.chosen else FAILED
            lines.append(Line(one.summary.path, "rejected", verdict, "\n".join(one.reasons)))
    return Stage("select", tuple(lines))


if __name__ == "__main__":
    sys.exit(main())
