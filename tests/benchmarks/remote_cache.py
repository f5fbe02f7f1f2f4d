"""A wheelhouse from a warm remote cache on an empty machine, against building it there; what a remote action costs.

The server is on the same machine. What it is sent and asked for is counted by a relay before it.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from datetime import datetime
from functools import partial
from pathlib import Path

from benchmarks.comparison import package, report, scratch, seconds
from integration import cluster
from integration.checkout import Checkout
from integration.cluster import AMD64, PINS, READERS, WRITERS, Cluster
from integration.recipes import address, recipe

HOUSE = f"""
cuda_wheelhouse(
    name="house",
    wheels=["{address("vecadd")}"],
    requirements="3rdparty/python/pypi.txt",
    arch="amd64",
    accel="cu130",
    torch="2.11.0",
    cuda_arch="8.0 8.6 8.9 9.0 10.0 10.3 12.0".split(),
    allow_narrowed=True,
)
"""


class Relay:
    """Passes connections on to a port of this machine, and counts their bytes."""

    def __init__(self, port: int) -> None:
        self.sent = self.received = 0
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            server = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._copy, args=(client, server, "sent"), daemon=True).start()
            threading.Thread(
                target=self._copy, args=(server, client, "received"), daemon=True
            ).start()

    def _copy(self, source: socket.socket, target: socket.socket, counter: str) -> None:
        try:
            while data := source.recv(1 << 16):
                setattr(self, counter, getattr(self, counter) + len(data))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return


def _checkout(folder: Path, environment: dict[str, str]) -> Checkout:
    caches = {
        "PANTS_NAMED_CACHES_DIR": str(folder / "named"),
        "PANTS_LOCAL_STORE_DIR": str(folder / "store"),
    }
    checkout = Checkout(folder / "checkout", {**caches, **environment})
    checkout.add_fixture("vecadd", recipe("vecadd"))
    checkout.write("house/BUILD", HOUSE)
    return checkout


def _cache(folder: Path) -> None:
    with Cluster(folder / "server") as server:
        times = []
        for place, subject in (("first", WRITERS), ("second", READERS)):
            relay = Relay(server.port)
            environment = {
                **cluster.client(server, subject),
                "PANTS_REMOTE_STORE_ADDRESS": f"grpc://127.0.0.1:{relay.port}",
                "PANTS_REMOTE_CACHE_WRITE": str(subject == WRITERS).lower(),
            }
            with _checkout(folder / place, environment) as checkout:
                checkout.pants("list", "::")  # Pants itself is there, and its daemon runs.
                times.append(seconds(partial(package, checkout, "house:house")))
            print(
                f"{place}: sent {relay.sent / 1e3:.0f} kB, received {relay.received / 1e3:.0f} kB"
            )
        store = [path.stat().st_size for path in server.blobs().values()]
        print(
            f"in the store: {len(store)} blobs, {sum(store) / 1e3:.0f} kB, {max(store)} the largest"
        )
    report(("wheelhouse from a warm cache", times[1]), ("built from nothing", times[0]))


def _execution(folder: Path) -> None:
    with Cluster(folder / "cluster", execution=True) as server:
        worker = server.add_worker("amd64", Arch="amd64", toolchain=AMD64)
        with _checkout(folder / "third", cluster.executing(server)) as checkout:
            checkout.write("images/pins.py", PINS)
            checkout.pants("list", "::")
            done = subprocess.run(
                [
                    str(checkout.root / "pants"),
                    *("--no-dynamic-ui", "--level=debug", "--cuda-wheels-gpu-archs=9.0"),
                    *("package", address("vecadd")),
                ],
                cwd=checkout.root,
                env=checkout.process_environment({}),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(done.stderr)
        actions = worker.work
    asked, answered = (
        [
            datetime.strptime(at, "%H:%M:%S.%f")
            for at in re.findall(
                rf"^(\S+) \[DEBUG\] {event}: run_execute_request$", done.stderr, re.MULTILINE
            )
        ]
        for event in ("Starting", "Completed")
    )
    start = asked[0]
    waited = sum((at - start).total_seconds() for at in answered)
    waited -= sum((at - start).total_seconds() for at in asked)
    worked = sum(action.seconds for action in actions)
    print(
        f"{len(asked)} remote actions: {waited:.1f} s from submission to answer, {worked:.1f} s of it on the "
        f"worker with what it fetches and uploads: {(waited - worked) / len(asked) * 1e3:.0f} ms each beside that"
    )


def main() -> None:
    with scratch() as folder:
        _cache(folder)
        _execution(folder)


if __name__ == "__main__":
    main()
