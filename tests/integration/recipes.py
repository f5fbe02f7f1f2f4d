"""BUILD files of the fixtures, as a scratch checkout gets them."""

from __future__ import annotations

TARGET = "amd64-cu130-torch2.11.0"


def recipe(package: str, *, source: str = 'files_source(".")', more: str = "") -> str:
    """A package that is built from the files beside its BUILD file."""
    return f"""
native_package(
    "{package}",
    "1.0",
    source={source},
    sources=["setup.py", "csrc/*", "{package}/*.py", "patches/*.patch"],
    memory_per_job_gb=2.0,
    {more}
)
"""


def address(directory: str) -> str:
    return f"tests/fixtures/{directory}:{TARGET}"


def comment_patch(comment: str) -> str:
    """A patch that adds a comment to a file of vecadd's wheel."""
    return f"""\
Reason: a test of what is rebuilt.
--- a/vecadd/__init__.py
+++ b/vecadd/__init__.py
@@ -1,3 +1,4 @@
 \"\"\"Adds and scales float vectors, on the CPU and on a GPU.\"\"\"
+# {comment}
 
 import torch
"""
