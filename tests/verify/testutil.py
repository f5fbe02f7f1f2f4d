"""What several tests of the tool need: a web server, and other Pythons of this machine."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """The address of a server that has the folder's files; it ends with the block."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def find_python(version: str) -> str | None:
    """A Python of this version that runs: pyenv's stand-ins for others on the PATH do not."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    named = shutil.which(f"python{version}")
    for python in (*([named] if named else []), *map(str, pyenv.glob(f"{version}.*/bin/python"))):
        if subprocess.run([python, "-V"], capture_output=True, check=False).returncode == 0:
            return python
    return None
