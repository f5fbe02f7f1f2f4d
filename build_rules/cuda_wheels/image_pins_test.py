from __future__ import annotations

import pytest

from cuda_wheels.image_pins import Pins, PinsError, parse

BASE = "nvidia/cuda:13.0.3-devel-rockylinux8"
DIGEST = "sha256:" + "0" * 64


def test_what_is_written_is_read_again() -> None:
    pins = Pins().with_bases({BASE: DIGEST, "rockylinux:8": DIGEST})
    pins = pins.with_images({"amd64-cu130": f"registry.example/team/amd64-cu130@{DIGEST}"})
    assert parse(pins.text) == pins
    assert parse(Pins().text) == Pins()
    assert f'        "{BASE}": "{DIGEST}",\n' in pins.text


def test_a_new_pin_replaces_the_old_one_and_leaves_the_others() -> None:
    pins = Pins().with_images({"amd64-cpu": "a:1", "amd64-cu130": "b:1"})
    changed = pins.with_images({"amd64-cu130": "b:2"}).with_bases({BASE: DIGEST})
    assert dict(changed.images) == {"amd64-cpu": "a:1", "amd64-cu130": "b:2"}
    assert dict(changed.bases) == {BASE: DIGEST}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "BASE_PINS = pins({})\n",
        "BASE_PINS = {}\nIMAGE_PINS = {}\n",
        "BASE_PINS = pins({1: 'a'})\nIMAGE_PINS = pins({})\n",
        "BASE_PINS = pins([])\nIMAGE_PINS = pins({})\n",
        "BASE_PINS = pins({'a': open('b')})\nIMAGE_PINS = pins({})\n",
        "<<<<<<< HEAD\n",
    ],
)
def test_a_file_of_another_form_is_told(text: str) -> None:
    with pytest.raises(PinsError, match="images/pins.py is not as"):
        parse(text)
