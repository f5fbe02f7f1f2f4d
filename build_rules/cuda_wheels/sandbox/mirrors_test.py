from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuda_wheels.sandbox import mirrors


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/x.tar.gz", "https://mirror.example/x.tar.gz"),
        ("https://a.example/deep/x.tar.gz", "file:///disk/x.tar.gz"),
        ("https://b.example/x.tar.gz", "https://b.example/x.tar.gz"),
    ],
)
def test_the_longest_mirror_applies(url: str, expected: str) -> None:
    leads = {
        "https://a.example/": "https://mirror.example/",
        "https://a.example/deep/": "file:///disk/",
    }
    assert mirrors.mirrored(url, leads) == expected


def test_mirrors_come_from_the_settings(tmp_path: Path) -> None:
    assert mirrors.load(tmp_path) == {}
    settings = tmp_path / "settings.json"
    settings.write_text("{}")
    assert mirrors.load(tmp_path) == {}
    settings.write_text(json.dumps({"source_mirrors": {"https://a.example/": "/disk/"}}))
    assert mirrors.load(tmp_path) == {"https://a.example/": "/disk/"}


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("https://git.example:8443/owner/name", "https://git.example:8443/"),
        ("ssh://git@git.example/owner/name", "ssh://git@git.example/"),
        ("git@git.example:owner/name", "git@git.example:"),
        ("file:///srv/git/name", "file:///"),
        ("name", "name"),
    ],
)
def test_the_example_is_for_the_whole_host(url: str, prefix: str) -> None:
    assert mirrors.example(url) == (
        f'[cuda-wheels].source_mirrors: {{"{prefix}": "https://MIRROR/"}}'
    )
