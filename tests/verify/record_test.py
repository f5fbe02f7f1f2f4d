"""What is kept of a run, and that the page and the tables say no more than the records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.audit.wheelhouse import WheelhouseError
from cuda_wheels.tables.verified import VERIFIED_RUNS, NativeWheel, VerifiedRun
from verify import main as tool
from verify.record import Record, read_record, record

PAGE = Path("docs/verification.md")
RECORDS = [read_record(path) for path in sorted(Path("docs/verification").glob("*.json"))]

DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "exit_code": 1,
    "host": {
        "system": "Linux",
        "machine": "x86_64",
        "glibc": "2.39",
        "python": "3.12",
        "driver": "580.1",
        "cuda": "13.0",
        "gpus": [{"name": "D", "capability": "9.0"}],
        "disk_free_gb": 3.5,
        "cache": "/home/somebody/.nv",
        "cache_writable": True,
    },
    "torch": {
        "device": "D",
        "capability": "9.0",
        "torch": "2.11.0+cu130",
        "torch_cuda": "13.0",
        "python": "3.12.3",
    },
    "wheelhouse": {
        "path": "/home/somebody/house",
        "tags": {"arch": "amd64", "accel": "cu130", "torch": "2.11.0", "python": "3.12"},
        "date": None,
        "sha256sums": None,
    },
    "stages": [
        {"stage": "doctor", "verdict": "passed", "lines": []},
        {
            "stage": "install",
            "verdict": "passed",
            "lines": [{"subject": "/home/somebody/house", "check": "c", "verdict": "passed"}],
        },
        {
            "stage": "kernels",
            "verdict": "FAILED",
            "lines": [
                {"subject": "a", "check": "x", "verdict": "passed", "version": "1+cu130"},
                {"subject": "a", "check": "y", "verdict": "passed", "version": "1+cu130"},
                {"subject": "b", "check": "x", "verdict": "passed", "version": "2"},
                {"subject": "b", "check": "y", "verdict": "FAILED", "version": "2"},
                {"subject": "c", "check": "x", "verdict": "not run", "detail": "not installed"},
            ],
        },
        {
            "stage": "model",
            "verdict": "passed",
            "lines": [
                {
                    "subject": "network",
                    "check": "z",
                    "verdict": "passed",
                    "error": 0.1,
                    "tolerance": 0.5,
                },
                {"subject": "Pointcept", "check": "PTv3", "verdict": "not run", "detail": "gone"},
            ],
        },
    ],
}


def written(folder: Path, document: Any) -> Path:
    file = folder / "record.json"
    file.write_text(json.dumps(document))
    return file


def test_a_record_has_what_ran_and_nothing_of_the_host_alone(tmp_path: Path) -> None:
    kept = record(DOCUMENT, "2026-11-30")
    assert "somebody" not in json.dumps(kept) and "3.5" not in json.dumps(kept)
    found = read_record(written(tmp_path, kept))
    assert (found.capability, found.tags["accel"]) == ("9.0", "cu130")
    # One failed check is enough against a package; one that was not there is not in the record.
    assert found.runs() == {"a": "1+cu130"}
    assert [line.subject for line in found.networks] == ["network"]


def test_the_command_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, record(DOCUMENT, "2026-11-30"))
    assert tool.main(["report", str(file)]) == 0
    text = capsys.readouterr().out
    assert (
        "D, compute capability 9.0, driver 580.1; torch 2.11.0+cu130, Python 3.12.3; 2026-11-30"
        in text
    )
    assert "| b | 2 | y |  |  | FAILED |" in text
    assert "| network |  | z | 0.1 | 0.5 | runs |" in text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("nothing", id="no-json"),
        pytest.param("[]", id="no-object"),
        pytest.param(json.dumps({**record(DOCUMENT, "d"), "schema": 2}), id="another-schema"),
        pytest.param(json.dumps(DOCUMENT), id="the-whole-json"),
        pytest.param(json.dumps({**record(DOCUMENT, "d"), "torch": None}), id="no-torch"),
        pytest.param(json.dumps({**record(DOCUMENT, "d"), "wheelhouse": None}), id="no-tags"),
    ],
)
def test_no_record(tmp_path: Path, text: str) -> None:
    file = tmp_path / "record.json"
    file.write_text(text)
    with pytest.raises(WheelhouseError, match=re.escape(str(file))):
        read_record(file)
    with pytest.raises(WheelhouseError):
        read_record(tmp_path / "none.json")


def _variant(record: Record, version: str) -> str:
    tags = record.tags
    torch = [f"torch{tags['torch']}"] if "torch" in version.partition("+")[2] else []
    python = f"cp{tags['python'].replace('.', '')}"
    return "-".join([tags["arch"], tags["accel"], *torch, python])


def _verified_runs(record: Record) -> set[VerifiedRun]:
    """What a record says of wheels of ours: those whose version names a row."""
    return {
        VerifiedRun(
            NativeWheel(name, version.partition("+")[0], _variant(record, version)),
            record.capability,
        )
        for name, version in record.runs().items()
        if "+" in version
    }


@pytest.mark.parametrize("record", RECORDS, ids=[record.date for record in RECORDS])
def test_the_page_has_the_table_of_each_record(record: Record) -> None:
    assert record.table() in PAGE.read_text()


@pytest.mark.parametrize("record", RECORDS, ids=[record.date for record in RECORDS])
def test_what_a_record_says_is_data_too(record: Record) -> None:
    assert _verified_runs(record)
    assert _verified_runs(record) <= set(VERIFIED_RUNS)
