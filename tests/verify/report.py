"""What the tool found, as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

PASSED, WARNING, FAILED, NOT_RUN = "passed", "warning", "FAILED", "not run"


@dataclass(frozen=True)
class Line:
    """One finding. `error` and `tolerance` are numbers that a kernel check measured."""

    subject: str
    check: str
    verdict: str
    detail: str = ""
    version: str | None = None
    error: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class Stage:
    """What one stage found."""

    name: str
    lines: tuple[Line, ...]

    @property
    def verdict(self) -> str:
        """Failed if anything did, and passed only if something did."""
        verdicts = {line.verdict for line in self.lines}
        if FAILED in verdicts:
            return FAILED
        return PASSED if verdicts & {PASSED, WARNING} else NOT_RUN


def stage_json(stage: Stage) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "verdict": stage.verdict,
        "lines": [
            {key: value for key, value in asdict(line).items() if value not in (None, "")}
            for line in stage.lines
        ],
    }


def stage_text(stage: Stage) -> str:
    """A heading and a table; a sentence that does not fit its column goes below."""
    rows = [
        (
            line.verdict,
            line.subject,
            line.check,
            "" if line.error is None else f"{line.error:.3g} <= {line.tolerance:.3g}",
        )
        for line in stage.lines
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    lines = [f"{stage.name}: {stage.verdict}"]
    for row, line in zip(rows, stage.lines):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        lines.append(f"  {cells}")
        lines += [f"      {sentence}" for sentence in line.detail.splitlines()]
    return "\n".join(lines)


def kernel_table(facts: Mapping[str, Any], lines: Iterable[Line], date: str | None = None) -> str:
    """The kernel checks as a Markdown table under a line about the machine, for documents."""
    text = [
        "{device}, compute capability {capability}, driver {driver}; torch {torch}, "
        "Python {python}".format(**facts) + (f"; {date}" if date else ""),
        "",
        "| package | version | check | largest error | accepted | result |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        numbers = [
            "" if number is None else f"{number:.3g}" for number in (line.error, line.tolerance)
        ]
        word = "runs" if line.verdict == PASSED else line.verdict
        words = word + (f": {line.detail}" if line.detail else "")
        cells = [line.subject, line.version or "", line.check, *numbers, words]
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text)
