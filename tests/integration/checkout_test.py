"""The scratch checkout itself, with a stand-in for `./pants`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_wheels.sandbox.testutil import script
from integration.checkout import Checkout

NO_DAEMON = "Timed out after 60s while waiting for pantsd to start"


def _checkout(tmp_path: Path, body: str) -> Checkout:
    checkout = Checkout(tmp_path / "checkout")
    script(checkout.root / "pants", f"echo x >> runs; {body}")
    return checkout


def _runs(checkout: Checkout) -> int:
    return len((checkout.root / "runs").read_text().split())


def test_a_daemon_that_never_starts_is_an_error_with_its_output(tmp_path: Path) -> None:
    checkout = _checkout(tmp_path, f"echo what it said; echo '{NO_DAEMON}' >&2; exit 1")
    with pytest.raises(AssertionError, match="in 3 attempts(?s:.*)what it said(?s:.*)waiting"):
        checkout.pants("list", "::")
    assert _runs(checkout) == 3


def test_a_daemon_that_starts_late_is_waited_for(tmp_path: Path) -> None:
    late = f"[ $(wc -l < runs) = 2 ] && exit 0; echo '{NO_DAEMON}' >&2; exit 1"
    checkout = _checkout(tmp_path, late)
    assert checkout.pants("list", "::").returncode == 0
    assert _runs(checkout) == 2


def test_another_failure_is_the_runs_own(tmp_path: Path) -> None:
    checkout = _checkout(tmp_path, "exit 3")
    assert checkout.pants("list", "::").returncode == 3
    assert _runs(checkout) == 1
