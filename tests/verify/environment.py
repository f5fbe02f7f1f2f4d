"""The Python environment that the wheels are in, and programs that run inside it."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_wheels.tables.names import canonical_name

TIMEOUT_S = 600


@dataclass(frozen=True)
class Environment:
    """An interpreter, and a folder of packages that is put before its own, if any."""

    python: Path
    overlay: Path | None = None
    isolated: bool = False  # a venv: the shell's PYTHONPATH is not for it


@dataclass(frozen=True)
class Ended:
    """How a process ended; `returncode` is None if it did not end in time."""

    returncode: int | None
    output: str

    @property
    def reason(self) -> str:
        """`signal 6: the last line that it printed`"""
        if self.returncode is None:
            return "it did not end in time"
        lines = self.output.strip().splitlines()
        code = self.returncode
        how = f"signal {-code}" if code < 0 else f"exit {code}"
        return f"{how}: {lines[-1].strip() if lines else 'no output'}"


def run(environment: Environment, argv: list[str], timeout_s: int = TIMEOUT_S) -> Ended:
    """Run the environment's Python; what it prints and its errors are one text."""
    try:
        done = subprocess.run(
            [str(environment.python), *argv],
            env=_variables(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ended(None, "")
    except OSError as error:
        return Ended(127, f"{environment.python}: {error.strerror}")
    return Ended(done.returncode, done.stdout)


def run_program(environment: Environment, name: str, *arguments: str) -> Ended:
    """Run one file of `programs/` there: it is copied out, since this tool may be one file."""
    source = pkgutil.get_data("verify.programs", name)
    if source is None:
        raise FileNotFoundError(name)
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        program = Path(folder) / name
        program.write_bytes(source)
        return run(environment, [str(program), *arguments])


def _variables(environment: Environment) -> dict[str, str]:
    """The shell's, without what this tool's own packaging and its Python left there."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PEX", "__PEX"))}
    if environment.isolated:
        for name in ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__"):
            kept.pop(name, None)
    if environment.overlay:
        paths = [str(environment.overlay), kept.get("PYTHONPATH")]
        kept["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept


_INSTALLED = """
import hashlib, importlib.metadata, json
found = {}
for one in importlib.metadata.distributions():
    name = one.metadata["Name"]
    if name and name not in found:
        record = one.read_text("RECORD") or ""
        found[name] = [one.version, hashlib.sha256(record.encode()).hexdigest()]
print("\\n" + json.dumps(found))
"""


def installed(environment: Environment) -> dict[str, tuple[str, str]]:
    """Distribution -> its version and the sha256 of its RECORD; the first on the path counts."""
    found = _last_json(run(environment, ["-c", _INSTALLED]))
    return {canonical_name(name): (entry[0], entry[1]) for name, entry in (found or {}).items()}


_FACTS = """
import json, sys, torch
there = torch.cuda.is_available()
print("\\n" + json.dumps({
    "device": torch.cuda.get_device_name() if there else None,
    "capability": "{}.{}".format(*torch.cuda.get_device_capability()) if there else None,
    "torch": torch.__version__,
    "torch_cuda": torch.version.cuda,
    "python": sys.version.split()[0],
}))
"""


def torch_facts(environment: Environment) -> tuple[dict[str, Any] | None, str]:
    """What torch says of itself and of its first GPU; None and the reason if it cannot be imported."""
    ended = run(environment, ["-c", _FACTS])
    found = _last_json(ended)
    return (found, "") if found is not None else (None, ended.reason)


def _last_json(ended: Ended) -> Any:
    """The last line as JSON, None if the process failed or printed something else."""
    lines = ended.output.strip().splitlines()
    if ended.returncode != 0 or not lines:
        return None
    try:
        return json.loads(lines[-1])
    except ValueError:
        return None
