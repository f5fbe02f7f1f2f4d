from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cuda_wheels.rules.stage import program_failure


def result(exit_code: int, stderr: str = "") -> Any:
    """What `program_failure` reads of a FallibleProcessResult."""
    return SimpleNamespace(exit_code=exit_code, stderr=stderr.encode())


def test_success_is_no_failure() -> None:
    assert program_failure("fetch", result(0, "a warning"), timeout=60) is None


@pytest.mark.parametrize(
    ("exit_code", "stderr", "message"),
    [
        (1, " the reason\n", "the reason"),
        (1, "", "The step ended with exit code 1 and said nothing."),
        # Ended by a signal, but no timeout was set.
        (-15, "", "The step ended with exit code -15 and said nothing."),
    ],
)
def test_a_program_says_why_it_failed(exit_code: int, stderr: str, message: str) -> None:
    failure = program_failure("patch", result(exit_code, stderr))
    assert failure is not None
    assert (failure.stage, failure.message) == ("patch", message)


def test_a_lock_is_named_as_in_the_repository() -> None:
    said = (
        "/tmp/pants-sandbox-xL071n/3rdparty/torch/a.txt needs packages.\n"
        "$ cc /tmp/pants-sandbox-xL071n/.compile-1/work/a.c\n"
        "`/sandboxes/pants-sandbox-1/3rdparty/python/b.txt` and 3rdparty/torch/c.txt"
    )
    failure = program_failure("compile", result(1, said))
    assert failure is not None
    assert failure.message.splitlines() == [
        "3rdparty/torch/a.txt needs packages.",
        "$ cc /tmp/pants-sandbox-xL071n/.compile-1/work/a.c",
        "`3rdparty/python/b.txt` and 3rdparty/torch/c.txt",
    ]


def test_what_the_script_around_an_action_says_is_left_out() -> None:
    said = "/bin/mkdir: cannot create directory ‘’: No such file or directory\nthe reason\n"
    failure = program_failure("repair", result(1, said))
    assert failure is not None and failure.message == "the reason"


def test_a_step_that_took_too_long_names_the_field_to_raise() -> None:
    failure = program_failure("compile", result(-15, "the last words"), timeout=60)
    assert failure is not None
    for part in ("`timeout` of 60 seconds", "Raise the target's `timeout` field", "last words"):
        assert part in failure.message


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_killed_step_names_what_kills(exit_code: int) -> None:
    failure = program_failure("compile", result(exit_code))
    assert failure is not None
    assert f"was killed (exit code {exit_code}): its container was stopped" in failure.message
