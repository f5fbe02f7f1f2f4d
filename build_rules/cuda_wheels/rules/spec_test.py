from __future__ import annotations

from cuda_wheels.rules.spec import narrow

PROMISED = ("8.0", "9.0", "12.0")


def test_nothing_asked_for_builds_what_is_promised() -> None:
    assert narrow(PROMISED, "", ()) == (PROMISED, ())


def test_narrowing_keeps_the_order_of_the_target() -> None:
    assert narrow(PROMISED, "12.0 8.0", ()) == (("8.0", "12.0"), ())


def test_native_takes_the_gpus_of_the_machine() -> None:
    assert narrow(PROMISED, "native", ("9.0", "9.0")) == (("9.0",), ())


def test_native_without_a_gpu_says_what_to_write_instead() -> None:
    _, (problem,) = narrow(PROMISED, "native", ())
    assert "nvidia-smi" in problem and "--cuda-wheels-gpu-archs" in problem


def test_a_capability_that_is_not_promised_is_refused() -> None:
    _, (problem,) = narrow(PROMISED, "9.0,8.6", ())
    assert "8.6" in problem and "8.0 9.0 12.0" in problem


def test_a_gpu_that_is_not_promised_is_refused() -> None:
    _, (problem,) = narrow(PROMISED, "native", ("7.5",))
    assert "7.5" in problem


def test_a_wheel_without_device_code_is_not_narrowed() -> None:
    assert narrow((), "9.0", ()) == ((), ())
