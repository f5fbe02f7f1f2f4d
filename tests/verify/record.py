"""What a run of the tool found, as it is kept in documents: without what is its host's alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_wheels.audit.wheelhouse import WheelhouseError
from verify.report import PASSED, Line, kernel_table

SCHEMA = 1
STAGES = ("import", "kernels", "model", "train")
_HOST = ("system", "machine", "glibc", "python", "driver", "cuda", "gpus")
_TORCH = ("device", "capability", "torch", "torch_cuda", "python")


def record(document: Mapping[str, Any], date: str) -> dict[str, Any]:
    """The part of the JSON of `all` or of one stage that says what ran where.

    Paths and the disk are left out, and so are the stages that compare or install files, and lines
    of packages that were not there. `date` is the day of the run, `2026-11-30`.
    """
    house, host, facts = document["wheelhouse"], document["host"], document["torch"]
    return {
        "schema": SCHEMA,
        "date": date,
        "exit_code": document["exit_code"],
        "host": {name: host[name] for name in _HOST},
        "torch": facts and {name: facts[name] for name in _TORCH},
        "wheelhouse": house and {name: house[name] for name in ("tags", "date")},
        "stages": [
            {
                **stage,
                "lines": [line for line in stage["lines"] if line.get("version") or _ran(line)],
            }
            for stage in document["stages"]
            if stage["stage"] in STAGES
        ],
    }


def _ran(line: Mapping[str, Any]) -> bool:
    return "error" in line


@dataclass(frozen=True)
class Record:
    """A record as it was read. `facts` are of torch and the driver; `tags` of the wheelhouse."""

    date: str
    facts: Mapping[str, Any]
    tags: Mapping[str, str]
    kernels: tuple[Line, ...]
    networks: tuple[Line, ...] = ()

    @property
    def capability(self) -> str:
        return str(self.facts["capability"])

    def runs(self) -> dict[str, str]:
        """Package -> its version, of those whose checks were made, all of them, and passed."""
        versions = {line.subject: line.version or "" for line in self.kernels}
        others = {line.subject for line in self.kernels if line.verdict != PASSED}
        return {name: version for name, version in versions.items() if name not in others}

    def table(self) -> str:
        """What was computed, for documents."""
        return kernel_table(self.facts, [*self.kernels, *self.networks], self.date)


def _lines(stages: Iterable[Any], *names: str) -> tuple[Line, ...]:
    return tuple(Line(**line) for one in stages if one["stage"] in names for line in one["lines"])


def read_record(path: Path) -> Record:
    """Raises WheelhouseError for a file that is no record."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise WheelhouseError(f"{path} has the schema {document['schema']}, not {SCHEMA}.")
        return Record(
            document["date"],
            {**document["torch"], "driver": document["host"]["driver"]},
            document["wheelhouse"]["tags"],
            _lines(document["stages"], "kernels"),
            _lines(document["stages"], "model", "train"),
        )
    except OSError as error:
        raise WheelhouseError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise WheelhouseError(
            f"{path} is no record of a run of `all` or `kernels` with a wheelhouse: "
            f"{type(error).__name__}: {error}\nThe option `--record FILE` writes one."
        ) from error
