"""The tool on Python 3.14, on which it is not run here: what can be told from its source.

The type checker knows of each module and function of the standard library in which versions it is
there; and the compiler of a new Python warns of what older ones took without a word.
"""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from mypy import api

ROOTS = (Path("build_rules"), Path("tests"))
SOURCES = [
    path
    for folder in ("tests/verify", "tests/verify/programs", "build_rules/cuda_wheels/audit")
    for path in sorted(Path(folder).glob("*.py"))
    if not path.name.endswith("_test.py") and not path.name.startswith("fake_")
]


def problems(source: str) -> Iterator[str]:
    """What the compiler of 3.14 warns of or refuses, a sentence a finding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = compile(source, "source", "exec", ast.PyCF_ONLY_AST)
    except (SyntaxError, SyntaxWarning) as error:
        yield str(error)
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            yield from (f"line {line} leaves a `finally`" for line in _leaving(node.finalbody))


def _leaving(body: Sequence[ast.AST], in_loop: bool = False) -> Iterator[int]:
    """Lines of `return`, `break` and `continue` that lead out of these statements (PEP 765)."""
    for node in body:
        if isinstance(node, ast.Return) or (
            isinstance(node, (ast.Break, ast.Continue)) and not in_loop
        ):
            yield node.lineno
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            inner = in_loop or isinstance(node, (ast.For, ast.AsyncFor, ast.While))
            yield from _leaving([*ast.iter_child_nodes(node)], inner)


def test_there_are_sources() -> None:
    assert {"main.py", "registry.py", "checks.py", "wheelhouse.py"} <= {one.name for one in SOURCES}


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_the_compiler_takes_it_without_a_warning(path: Path) -> None:
    assert [*problems(path.read_text())] == []


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        pytest.param("def f():\n try: pass\n finally: return 1", "leaves a `finally`", id="return"),
        pytest.param(
            "for x in y:\n try: pass\n finally:\n  if x: break", "leaves a `finally`", id="break"
        ),
        pytest.param("x = '\\d'", "invalid escape sequence", id="escape"),
    ],
)
def test_what_is_found(source: str, finding: str) -> None:
    (found,) = problems(source)
    assert finding in found


def test_a_loop_inside_a_finally_is_not_left() -> None:
    source = "try: pass\nfinally:\n for x in y:\n  if x: break"
    assert [*problems(source)] == []


def check(monkeypatch: pytest.MonkeyPatch, cache: Path, *sources: Path) -> str:
    monkeypatch.setenv("MYPYPATH", os.pathsep.join(map(str, ROOTS)))
    options = ["--python-version", "3.14", "--cache-dir", str(cache), "--no-site-packages"]
    found, errors, _ = api.run([*options, *map(str, sources)])
    return found + errors


def test_the_types_are_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "Success" in check(monkeypatch, tmp_path, *SOURCES)
    # What the checker would say of a module that is gone.
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import pkgutil\n\nx = pkgutil.find_loader('json')\n")
    assert '"find_loader"' in check(monkeypatch, tmp_path, wrong)
