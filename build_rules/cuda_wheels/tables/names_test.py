from __future__ import annotations

import pytest

from cuda_wheels.tables.names import canonical_name, pins_of


@pytest.mark.parametrize(
    "name, canonical",
    [
        ("torch", "torch"),
        ("Torch_Scatter", "torch-scatter"),
        ("ruamel.yaml", "ruamel-yaml"),
        ("a-_.b", "a-b"),
    ],
)
def test_a_name_as_an_index_compares_it(name: str, canonical: str) -> None:
    assert canonical_name(name) == canonical


def test_the_pins_of_a_lock() -> None:
    lock = (
        "# numpy==1.0\n"
        "Flash_Attn==2.8.3.post2 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
        "torch==2.9.1+cu126; sys_platform == 'linux' \\\n    --hash=sha256:22\n"
        "    six==1.0\n"
        "tqdm>=4\n"
    )
    assert pins_of(lock) == {"flash-attn": "2.8.3.post2", "torch": "2.9.1+cu126"}
