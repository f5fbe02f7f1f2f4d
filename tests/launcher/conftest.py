from __future__ import annotations

import pytest

from launcher import toy as toys


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> toys.Toy:
    return toys.make(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def ready(toy: toys.Toy) -> str:
    """The name of caches in which the set-up is made."""
    assert toy.run(toy.environment("ready")).exit_code == 0
    return "ready"
