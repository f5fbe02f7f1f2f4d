"""What the launcher tells Pants: pip's index and certificates, and where Pythons are."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

import pytest

from launcher.toy import Toy

INDEXES = "PANTS_PYTHON_REPOS_INDEXES"
FIND_LINKS = "PANTS_PYTHON_REPOS_FIND_LINKS"
CERTIFICATES = "PANTS_CA_CERTS_PATH"
DEFAULTS = {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": ""}
MAIN, EXTRA = "https://mirror.example/simple", "https://extra.example/simple"


def told(toy: Toy, cache: str, **variables: str) -> Mapping[str, str]:
    run = toy.run(toy.environment(cache, **{**DEFAULTS, **variables}))
    assert (run.exit_code, run.stderr) == (0, "")
    return run.variables


def test_pips_defaults_leave_pants_its_own(toy: Toy, ready: str) -> None:
    assert not {INDEXES, FIND_LINKS, CERTIFICATES} & set(told(toy, ready))


@pytest.mark.parametrize(
    "variables, indexes",
    [
        pytest.param({"PIP_INDEX_URL": MAIN}, f"['{MAIN}']", id="main"),
        pytest.param({"PIP_EXTRA_INDEX_URL": EXTRA}, f"+['{EXTRA}']", id="beside-the-default"),
        pytest.param(
            {"PIP_INDEX_URL": MAIN, "PIP_EXTRA_INDEX_URL": f"{EXTRA} file:///nowhere/simple"},
            f"['{MAIN}', '{EXTRA}']",
            id="both-less-what-is-not-there",
        ),
        pytest.param({"PIP_INDEX_URL": MAIN, "PIP_NO_INDEX": "1"}, "[]", id="none"),
    ],
)
def test_pips_index_becomes_that_of_pants(
    toy: Toy, ready: str, variables: dict[str, str], indexes: str
) -> None:
    assert told(toy, ready, **variables)[INDEXES] == indexes


def test_find_links_that_are_there_are_handed_over(toy: Toy, ready: str) -> None:
    variables = told(toy, ready, PIP_FIND_LINKS=f"/nowhere {toy.wheels} https://mirror.example/x")
    assert variables[FIND_LINKS] == f"['{toy.wheels}', 'https://mirror.example/x']"


def test_a_changed_configuration_file_is_read_again(toy: Toy, ready: str, tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    for index in (MAIN, EXTRA):
        file.write_text(f"[global]\nindex-url = {index}\n")
        assert told(toy, ready, PIP_CONFIG_FILE=str(file))[INDEXES] == f"['{index}']"
    assert INDEXES not in told(toy, ready)


def test_certificates_come_from_pip_before_the_session(
    toy: Toy, ready: str, tmp_path: Path
) -> None:
    pip, session = tmp_path / "pip.pem", tmp_path / "session.pem"
    pip.touch()
    session.touch()
    assert told(toy, ready, SSL_CERT_FILE=str(session))[CERTIFICATES] == str(session)
    both = told(toy, ready, SSL_CERT_FILE=str(session), PIP_CERT=str(pip))
    assert both[CERTIFICATES] == str(pip)


def test_what_the_user_set_for_pants_stands(toy: Toy, ready: str, tmp_path: Path) -> None:
    mine = {INDEXES: "['https://mine.example']", "PANTS_PYTHON_BOOTSTRAP_SEARCH_PATH": "['/mine']"}
    variables = told(toy, ready, PIP_INDEX_URL=MAIN, **mine)
    assert mine.items() <= variables.items()

    options = tmp_path / "mine.toml"
    options.write_text('[python-repos]\nindexes = ["https://mine.example"]\n')
    for files in (str(options), f"['{options}']"):
        assert INDEXES not in told(toy, ready, PIP_INDEX_URL=MAIN, PANTS_CONFIG_FILES=files)


def test_pants_looks_where_its_python_and_uvs_are(toy: Toy, ready: str, tmp_path: Path) -> None:
    uv = tmp_path / "cpython-3.12.1-linux-x86_64-gnu/bin"
    uv.mkdir(parents=True)
    variables = told(toy, ready, UV_PYTHON_INSTALL_DIR=str(tmp_path))
    paths = variables["PANTS_PYTHON_BOOTSTRAP_SEARCH_PATH"]
    (home,) = toy.homes(ready)
    configuration = (home / "venv/pyvenv.cfg").read_text().splitlines()
    (base,) = [line[len("home = ") :] for line in configuration if line.startswith("home = ")]
    assert paths == f"+['{base}','{uv}',]"
