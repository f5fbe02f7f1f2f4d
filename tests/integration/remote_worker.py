"""A worker for tests: takes actions from a server's Bots service and runs one at a time.

    python3.13 remote_worker.py [--token=FILE] ADDRESS INSTANCE NAME DIRECTORY PATH KEY=VALUE...

Runs in the environment of `3rdparty/python/remote.txt`, whose server's protocol modules it uses. It is
no worker for users: they run the one of their engine. It tells the server that it lives while an
action runs, ends an action that the server cancels, gives it a directory of its own below DIRECTORY
and no variable but PATH. `{chroot}` reaches an action as it was sent.

Each action that ended is one JSON line on stdout: its digest, command, exit code and times.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc  # pants: no-infer-dep
from buildgrid._protos.build.bazel.remote.execution.v2 import (
    remote_execution_pb2 as reapi,  # pants: no-infer-dep
)
from buildgrid._protos.build.bazel.remote.execution.v2 import (
    remote_execution_pb2_grpc as reapi_grpc,  # pants: no-infer-dep
)
from buildgrid._protos.google.bytestream import bytestream_pb2 as stream  # pants: no-infer-dep
from buildgrid._protos.google.bytestream import (
    bytestream_pb2_grpc as stream_grpc,  # pants: no-infer-dep
)
from buildgrid._protos.google.devtools.remoteworkers.v1test2 import (
    bots_pb2,  # pants: no-infer-dep
    bots_pb2_grpc,  # pants: no-infer-dep
)

HEARTBEAT_S = 1.0
# More than this is sent in pieces.
CHUNK = 1 << 20
# How long the server may keep an idle worker's question open.
POLL_S = 10
RETRY_S = 0.5
# gRPC's codes, as leases report them.
INTERNAL, CANCELLED = 13, 1


class Store:
    """The server's content-addressed store."""

    def __init__(self, channel: grpc.Channel, instance: str) -> None:
        self.instance = instance
        self._cas = reapi_grpc.ContentAddressableStorageStub(channel)
        self._bytes = stream_grpc.ByteStreamStub(channel)

    def get(self, digest: reapi.Digest) -> bytes:
        """A blob. Raises ValueError where the store has other bytes than the digest says."""
        if digest.size_bytes == 0:
            return b""
        name = f"{self.instance}/blobs/{digest.hash}/{digest.size_bytes}"
        content = b"".join(
            piece.data for piece in self._bytes.Read(stream.ReadRequest(resource_name=name))
        )
        found = hashlib.sha256(content).hexdigest()
        if found != digest.hash:
            raise ValueError(f"the blob {digest.hash} of the store has the sha256 {found}")
        return content

    def put(self, content: bytes) -> reapi.Digest:
        digest = digest_of(content)
        if digest.size_bytes <= CHUNK:
            request = reapi.BatchUpdateBlobsRequest(instance_name=self.instance)
            request.requests.add(digest=digest, data=content)
            status = self._cas.BatchUpdateBlobs(request).responses[0].status
            if status.code:
                raise OSError(f"the store refuses {digest.hash}: {status.message}")
        else:
            self._bytes.Write(self._pieces(digest, content))
        return digest

    def _pieces(self, digest: reapi.Digest, content: bytes) -> Iterator[stream.WriteRequest]:
        name = f"{self.instance}/uploads/{uuid.uuid4()}/blobs/{digest.hash}/{digest.size_bytes}"
        for offset in range(0, len(content), CHUNK):
            yield stream.WriteRequest(
                resource_name="" if offset else name,
                write_offset=offset,
                data=content[offset : offset + CHUNK],
                finish_write=offset + CHUNK >= len(content),
            )


def digest_of(content: bytes) -> reapi.Digest:
    return reapi.Digest(hash=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


def stage(store: Store, digest: reapi.Digest, path: Path) -> None:
    """Write the input tree of `digest` to the directory `path`."""
    path.mkdir(exist_ok=True)
    tree = reapi.Directory.FromString(store.get(digest))
    for file in tree.files:
        (path / file.name).write_bytes(store.get(file.digest))
        (path / file.name).chmod(0o755 if file.is_executable else 0o644)
    for link in tree.symlinks:
        (path / link.name).symlink_to(link.target)
    for directory in tree.directories:
        stage(store, directory.digest, path / directory.name)


def capture(store: Store, root: Path, result: reapi.ActionResult, names: list[str]) -> None:
    """Upload the outputs of `names` that are there, and add them to `result`."""
    for name in names:
        path = root / name
        if path.is_symlink():
            result.output_symlinks.add(path=name, target=os.readlink(path))
        elif path.is_dir():
            directories: dict[str, reapi.Directory] = {}
            tree = reapi.Tree(root=_directory(store, path, directories))
            tree.children.extend(directories.values())
            result.output_directories.add(
                path=name, tree_digest=store.put(tree.SerializeToString())
            )
        elif path.exists():
            result.output_files.add(
                path=name,
                digest=store.put(path.read_bytes()),
                is_executable=bool(path.stat().st_mode & stat.S_IXUSR),
            )


def _directory(
    store: Store, path: Path, directories: dict[str, reapi.Directory]
) -> reapi.Directory:
    """The directory as a message; those below it are added to `directories`."""
    tree = reapi.Directory()
    for entry in sorted(path.iterdir()):
        if entry.is_symlink():
            tree.symlinks.add(name=entry.name, target=os.readlink(entry))
        elif entry.is_dir():
            below = _directory(store, entry, directories)
            digest = store.put(below.SerializeToString())
            directories[digest.hash] = below
            tree.directories.add(name=entry.name, digest=digest)
        else:
            tree.files.add(
                name=entry.name,
                digest=store.put(entry.read_bytes()),
                is_executable=bool(entry.stat().st_mode & stat.S_IXUSR),
            )
    return tree


class Running:
    """An action that runs in a thread; `cancel` ends it with all that it started."""

    def __init__(
        self, store: Store, name: str, root: Path, path: str, digest: reapi.Digest
    ) -> None:
        self.result: reapi.ActionResult | None = None
        self.error = ""
        self._store, self._name, self._root, self._path = store, name, root, path
        self._digest = digest
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        self._cancelled = True
        self._kill()
        self._thread.join()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _run(self) -> None:
        started = time.time()
        command = reapi.Command()
        try:
            action = reapi.Action.FromString(self._store.get(self._digest))
            command = reapi.Command.FromString(self._store.get(action.command_digest))
            self.result = self._execute(action, command)
        except (grpc.RpcError, OSError, ValueError) as error:
            self.error = str(error)[:500]
        report = {
            "action": self._digest.hash,
            "arguments": list(command.arguments),
            "exit": self.result.exit_code if self.result else None,
            "error": self.error,
            "cancelled": self._cancelled,
            "started": started,
            "seconds": round(time.time() - started, 3),
        }
        print(json.dumps(report), flush=True)

    def _execute(self, action: reapi.Action, command: reapi.Command) -> reapi.ActionResult:
        result = reapi.ActionResult()
        times = result.execution_metadata
        times.worker = self._name
        times.worker_start_timestamp.GetCurrentTime()
        sandbox = Path(tempfile.mkdtemp(prefix="action-", dir=self._root))
        try:
            times.input_fetch_start_timestamp.GetCurrentTime()
            stage(self._store, action.input_root_digest, sandbox)
            times.input_fetch_completed_timestamp.GetCurrentTime()
            directory = sandbox / command.working_directory
            # Pants 2.17 sends the fields of version 2.0 of the protocol.
            outputs = list(command.output_paths) or [
                *command.output_files,
                *command.output_directories,
            ]
            for output in outputs:
                (directory / output).parent.mkdir(parents=True, exist_ok=True)
            times.execution_start_timestamp.GetCurrentTime()
            code, stdout, stderr = self._call(action, command, directory)
            times.execution_completed_timestamp.GetCurrentTime()
            times.output_upload_start_timestamp.GetCurrentTime()
            result.exit_code = code
            result.stdout_digest.CopyFrom(self._store.put(stdout))
            result.stderr_digest.CopyFrom(self._store.put(stderr))
            capture(self._store, directory, result, sorted(set(outputs)))
            times.output_upload_completed_timestamp.GetCurrentTime()
            times.worker_completed_timestamp.GetCurrentTime()
            return result
        finally:
            shutil.rmtree(sandbox, ignore_errors=True)

    def _call(
        self, action: reapi.Action, command: reapi.Command, directory: Path
    ) -> tuple[int, bytes, bytes]:
        env = {"PATH": self._path, **{v.name: v.value for v in command.environment_variables}}
        arguments = list(command.arguments)
        name = arguments[0]
        program = str(directory / name) if "/" in name else shutil.which(name, path=env["PATH"])
        if program is None:
            return 127, b"", f"{name} is not on PATH\n".encode()
        try:
            self._process = subprocess.Popen(
                arguments,
                executable=program,
                cwd=directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return 127, b"", f"{program}: {error}\n".encode()
        if self._cancelled:
            self._kill()
        timeout = action.timeout.ToNanoseconds() / 1e9 if action.HasField("timeout") else None
        try:
            stdout, stderr = self._process.communicate(timeout=timeout or None)
        except subprocess.TimeoutExpired:
            self._kill()
            stdout, stderr = self._process.communicate()
            stderr += b"\nThe action ran into its timeout.\n"
        code = self._process.returncode
        return (code if code >= 0 else 128 - code), stdout, stderr


class Worker:
    """A session with the server, begun again after each error of the network."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        options = [("grpc.max_receive_message_length", 64 << 20)]
        channel = grpc.insecure_channel(arguments.address, options=options)
        if arguments.token:
            token = Path(arguments.token).read_text().strip()
            channel = grpc.intercept_channel(channel, _Token(token))
        self._bots = bots_pb2_grpc.BotsStub(channel)
        self._store = Store(channel, arguments.instance)
        self._instance, self._name = arguments.instance, arguments.name
        self._root = Path(arguments.directory)
        self._root.mkdir(parents=True, exist_ok=True)
        self._path = arguments.path
        self._properties = [tuple(pair.split("=", 1)) for pair in arguments.properties]

    def serve(self) -> None:
        while True:
            try:
                self._session()
            except grpc.RpcError as error:
                print(f"{self._name}: {error}", file=sys.stderr, flush=True)
                time.sleep(RETRY_S)

    def _session(self) -> None:
        session = bots_pb2.BotSession(bot_id=self._name, status=bots_pb2.OK)
        device = session.worker.devices.add(handle=self._name)
        for key, value in self._properties:
            device.properties.add(key=key, value=value)
        session = self._bots.CreateBotSession(
            bots_pb2.CreateBotSessionRequest(parent=self._instance, bot_session=session),
            timeout=POLL_S,
        )
        print(f"{self._name}: ready", flush=True)
        while True:
            for lease in session.leases:
                if lease.state in (bots_pb2.PENDING, bots_pb2.ACTIVE):
                    session = self._work(session, lease)
                    break
            else:
                session = self._update(session)

    def _update(self, session: bots_pb2.BotSession) -> bots_pb2.BotSession:
        return self._bots.UpdateBotSession(
            bots_pb2.UpdateBotSessionRequest(name=session.name, bot_session=session),
            timeout=POLL_S,
        )

    def _work(self, session: bots_pb2.BotSession, lease: bots_pb2.Lease) -> bots_pb2.BotSession:
        digest = reapi.Digest()
        if not lease.payload.Unpack(digest):
            action = reapi.Action()
            lease.payload.Unpack(action)
            try:
                digest = self._store.put(action.SerializeToString())
            except OSError as error:
                lease.state = bots_pb2.COMPLETED
                lease.status.code, lease.status.message = INTERNAL, str(error)
                return self._update(session)
        running = Running(self._store, self._name, self._root, self._path, digest)
        try:
            while not running.wait(HEARTBEAT_S):
                session = self._heartbeat(session, lease.id)
                states = {one.id: one.state for one in session.leases}
                if states.get(lease.id) in (None, bots_pb2.CANCELLED):
                    running.cancel()
                    return self._update(session)
        except grpc.RpcError:
            # The server knows nothing of this session any more: it hands the action out again.
            running.cancel()
            raise
        for one in session.leases:
            if one.id == lease.id:
                one.state = bots_pb2.COMPLETED
                if running.result is not None:
                    one.result.Pack(running.result)
                else:
                    one.status.code, one.status.message = INTERNAL, running.error
        return self._update(session)

    def _heartbeat(self, session: bots_pb2.BotSession, lease: str) -> bots_pb2.BotSession:
        for one in session.leases:
            if one.id == lease and one.state == bots_pb2.PENDING:
                one.state = bots_pb2.ACTIVE
        return self._update(session)


class _Token(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
):
    """Adds a bearer token to every call."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _with_token(self, details: grpc.ClientCallDetails) -> grpc.ClientCallDetails:
        class Details(grpc.ClientCallDetails):
            method = details.method
            timeout = details.timeout
            metadata = [*(details.metadata or ()), self._header]
            credentials = details.credentials
            wait_for_ready = details.wait_for_ready
            compression = details.compression

        return Details()

    def intercept_unary_unary(self, continuation, details, request):
        return continuation(self._with_token(details), request)

    intercept_unary_stream = intercept_unary_unary
    intercept_stream_unary = intercept_unary_unary


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("address", "instance", "name", "directory", "path"):
        parser.add_argument(name)
    parser.add_argument("--token")
    parser.add_argument("properties", nargs="*")
    Worker(parser.parse_args()).serve()


if __name__ == "__main__":
    main()
