"""The shell scripts of the repository are clean for shellcheck."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHELLCHECK = Path(sys.executable).parent / "shellcheck"


@pytest.mark.parametrize("script", ["pants", ".ci/prepare", ".ci/run", "3rdparty/python/lock"])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    run = subprocess.run([str(SHELLCHECK), script], stdout=subprocess.PIPE, text=True)
    assert (run.returncode, run.stdout) == (0, "")
