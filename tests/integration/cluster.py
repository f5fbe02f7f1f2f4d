"""A server of remote caching and execution with its workers, from the package index, for tests.

BuildGrid runs on a Python 3.13, with redis-server for the results of actions and PostgreSQL for its queue, as
`images/runner/` has users deploy it. `missing()` says what of these a machine lacks.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import fcntl
import grp
import hashlib
import hmac
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox.servers_testutil import on_small_disk
from integration.checkout import Checkout, link_shared
from integration.recipes import recipe

LOCK = Path("3rdparty/python/remote.txt")
DEPLOYMENT = Path("images/runner")
WORKER = Path(__file__).with_name("remote_worker.py")
INSTANCE = "main"
# Not a machine's user: the name that the database has for the server.
DATABASE = "buildgrid"
START_S = 120.0


def find_python() -> str | None:
    """A CPython 3.13 that runs, where `./pants` looks for others."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path(data) / "uv/python")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        *pyenv.glob("versions/3.13*/bin/python"),
        *uv.glob("cpython-3.13.*/bin/python3.13"),
    ]
    on_path = shutil.which("python3.13")
    for candidate in [*map(str, candidates), *([on_path] if on_path else [])]:
        command = [
            candidate,
            "-c",
            "import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 13))",
        ]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def find_postgres() -> Path | None:
    """The directory of PostgreSQL's programs; Debian has them outside of PATH."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name)
    )
    initdb = shutil.which("initdb")
    found = [*versions[-1:], *([Path(initdb).parent] if initdb else [])]
    return next((path for path in found if (path / "initdb").exists()), None)


def missing() -> str | None:
    """What this machine lacks for a cluster, with what installs it; None where all is there."""
    lacks = []
    if find_python() is None:
        lacks.append("Python 3.13 (`uv python install 3.13`)")
    if find_postgres() is None:
        lacks.append("PostgreSQL (`apt-get install postgresql`)")
    if shutil.which("redis-server") is None:
        lacks.append("redis-server (`apt-get install redis-server`)")
    return f"not here: {', '.join(lacks)}" if lacks else None


def environment() -> Path:
    """The environment of the locked server, made once a lock."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuda-wheels"
    home = cache / f"remote-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".remote.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            python = find_python()
            assert python is not None
            _run([python, "-m", "venv", str(home)])
            pip = [str(home / "bin/python"), "-m", "pip", "-qq", "--no-input"]
            _run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(LOCK)])
            (home / "complete").touch()
    return home


def _run(argv: list[str], **kwargs: Any) -> str:
    """Run a command; its output is in the error where it fails."""
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **kwargs
    )
    if done.returncode:
        raise AssertionError(f"{argv}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], Any], what: str, seconds: float = START_S) -> Any:
    """The first true answer of `condition`; an AssertionError where there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)
    return answer


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Service:
    """A process that serves until it is stopped; its output is in `log`."""

    argv: list[str]
    log: Path
    user: str | None = None
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                start_new_session=True,
                **as_user(self.user),
            )

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """End it and all that it started."""
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if signal_number == signal.SIGKILL:
                os.killpg(process.pid, signal_number)
            else:
                process.send_signal(signal_number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def died(self) -> bool:
        """False while it runs; an AssertionError with its last words where it has ended."""
        if self.process is None or self.process.poll() is not None:
            raise AssertionError(f"{self.argv} ended\n{self.tail()}")
        return False

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])


def as_user(user: str | None) -> dict[str, Any]:
    """What has `subprocess` run a program as another user; PostgreSQL refuses root."""
    return {"user": user, "group": user, "extra_groups": []} if user else {}


def unprivileged() -> str | None:
    """A user for PostgreSQL; None where this is not root, and the own one will do."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return name if pwd.getpwnam(name) and grp.getgrnam(name) else None
    return "daemon"


@dataclass(frozen=True)
class Work:
    """One line of a worker: an action that it ended."""

    worker: str
    action: str
    arguments: tuple[str, ...]
    exit: int | None
    error: str
    cancelled: bool
    seconds: float

    @property
    def program(self) -> str | None:
        """The program of `sandbox/` that it was, `compile` for instance."""
        names = [a for a in self.arguments if a.startswith("cuda_wheels.sandbox.")]
        return names[0].rpartition(".")[2] if names else None


@dataclass
class Worker:
    """A worker of the cluster."""

    name: str
    service: Service

    @property
    def work(self) -> list[Work]:
        """What it has done so far."""
        if not self.service.log.exists():
            return []
        done = []
        for line in self.service.log.read_text(errors="replace").splitlines():
            if line.startswith("{"):
                facts = json.loads(line)
                facts.pop("started")
                facts["arguments"] = tuple(facts["arguments"])
                done.append(Work(worker=self.name, **facts))
        return done


# The digests of the images that the workers of a checkout's rows say they run in.
AMD64, ARM64 = "a" * 64, "b" * 64
PINS = f"""
BASE_PINS = pins({{}})
IMAGE_PINS = pins(
    {{
        "amd64-cu130": "registry.example/amd64-cu130@sha256:{AMD64}",
        "arm64-cu130": "registry.example/arm64-cu130@sha256:{ARM64}",
    }}
)
"""


SECRET = "what signs the tokens of a test, and nothing else"
WRITERS = "ci"
WORKERS = "worker"
READERS = "people"


def token(subject: str, *, secret: str = SECRET, seconds: int = 86_400) -> str:
    """A bearer token for the server: `subject` is WRITERS or READERS."""

    def encoded(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    head = encoded(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = encoded(json.dumps({"sub": subject, "exp": int(time.time()) + seconds}).encode())
    mac = hmac.new(secret.encode(), f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{encoded(mac)}"


@dataclass
class Cluster:
    """A server as users deploy it, with redis-server; as a context manager.

    With `execution` it has a queue, and PostgreSQL for it. With `tls` clients speak `grpcs` to it. With
    `disk` its store lies on a disk of that size (`200k`), which the server alone sees.
    """

    root: Path
    execution: bool = False
    tls: bool = False
    disk: str | None = None
    port: int = field(default_factory=free_port)
    workers: dict[str, Worker] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._services: list[Service] = []
        self._venv = environment()
        self.store = self.root / "cas"
        self.store.mkdir(parents=True)
        self._server: Service | None = None

    @property
    def address(self) -> str:
        # Pants' TLS wants a name, no number.
        return f"grpcs://localhost:{self.port}" if self.tls else f"grpc://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        return self.root / "tls/server.crt"

    def __enter__(self) -> Cluster:
        try:
            redis_port = self._start_redis()
            sql = self._start_postgres() if self.execution else None
            if self.tls:
                self._make_certificate()
            shutil.copy(DEPLOYMENT / "acl.yml", self.root)
            (self.root / "token-secret").write_text(SECRET)
            (self.root / "buildgrid.yml").write_text(self._configuration(sql, redis_port))
            self.start_server()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self.workers.values():
            worker.service.stop(signal.SIGKILL)
        self.stop_server()
        for service in reversed(self._services):
            service.stop(signal.SIGINT)

    def start_server(self) -> None:
        argv = [str(self._venv / "bin/bgd"), "server", "start", str(self.root / "buildgrid.yml")]
        if self.disk:
            argv = on_small_disk(self.store, self.disk, argv)
        server = self._server = Service(argv, self.root / f"server-{time.monotonic_ns()}.log")
        server.start()
        wait_for(lambda: listens(self.port) or server.died(), f"{argv} listens")

    def stop_server(self) -> None:
        if self._server is not None:
            self._server.stop()

    def add_worker(self, name: str, **properties: str) -> Worker:
        """Start a worker, and wait until the server knows it."""
        file = self.root / "worker-token"
        file.write_text(token(WORKERS))
        argv = [str(self._venv / "bin/python"), str(WORKER.absolute()), f"--token={file}"]
        argv += [f"127.0.0.1:{self.port}", INSTANCE, name, str(self.root / f"work-{name}")]
        argv.append(f"{self._python_directory()}:{os.defpath}")
        argv += [f"{key}={value}" for key, value in {"OSFamily": "linux", **properties}.items()]
        worker = Worker(name, Service(argv, self.root / f"worker-{name}.log"))
        worker.service.start()
        self.workers[name] = worker
        wait_for(lambda: f"{name}: ready" in worker.service.tail() or worker.service.died(), name)
        return worker

    @property
    def caches(self) -> Path:
        """Where workers keep append-only caches, with this machine's build environments in them.

        The settings of indexes are there, as on a worker that an operator has set up.
        """
        base = self.root / "caches"
        cache = base / "cuda_wheels"
        if not cache.exists():
            cache.mkdir(parents=True)
            link_shared(cache)
            (cache / "settings.json").write_text(json.dumps(self._index_settings()))
        return base

    def _index_settings(self) -> dict[str, Any]:
        """What pip is configured to use on this machine, as the file of a worker says it."""
        python = str(self._venv / "bin/python")
        listing = _run([python, "-m", "pip", "config", "list"])
        values = {}
        for line in listing.splitlines():
            key, _, value = line.partition("=")
            values[key.rpartition(".")[2]] = ast.literal_eval(value)
        # What pip asks where nothing is configured, which no file of this project names.
        default = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
        index = values.get("index-url") or _run([python, "-c", default])
        indexes = [*index.split(), *values.get("extra-index-url", "").split()]
        proxies = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY")
        return {
            "indexes": indexes,
            "find_links": values.get("find-links", "").split(),
            "ca_certs": values.get("cert") or os.environ.get("SSL_CERT_FILE"),
            "proxies": {name: os.environ[name] for name in proxies if name in os.environ},
        }

    def _python_directory(self) -> Path:
        """A directory with nothing but the Python 3.12 that runs the tests."""
        directory = self.root / "bin"
        directory.mkdir(exist_ok=True)
        link = directory / "python3.12"
        if not link.is_symlink():
            link.symlink_to(os.path.realpath(sys.executable))
        return directory

    def work(self, program: str | None = None) -> list[Work]:
        """What all workers have done so far; of one program of `sandbox/` alone."""
        done = [work for worker in self.workers.values() for work in worker.work]
        return [work for work in done if program is None or work.program == program]

    def blobs(self) -> dict[str, Path]:
        """sha256 and file of what the store holds."""
        objects = self.store / "cas/objects"
        return {f"{path.parent.name}{path.name}": path for path in objects.glob("??/*")}

    def _start_postgres(self) -> str:
        programs = find_postgres()
        assert programs is not None
        user = unprivileged()
        # Every directory above must let the other user pass, and the path of a socket is short.
        home = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
        home.chmod(0o755)
        if user:
            shutil.chown(home, user, user)
        env = {"PATH": os.defpath, "LC_ALL": "C", "HOME": str(home)}
        data = str(home / "data")
        common = {"env": env, "cwd": home, **as_user(user)}
        _run(
            [
                str(programs / "initdb"),
                "-D",
                data,
                "-A",
                "trust",
                "-U",
                DATABASE,
                "-N",
                "-E",
                "UTF8",
            ],
            **common,
        )
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-k", str(home)]
        service = _Temporary(
            [str(programs / "postgres"), "-D", data, *options], self.root / "postgres.log", user
        )
        service.home = home
        service.start()
        self._services.append(service)

        def create() -> bool:
            command = [str(programs / "createdb"), "-h", str(home), "-U", DATABASE, DATABASE]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

        wait_for(create, "PostgreSQL answers")
        address = f"postgresql://{DATABASE}@/{DATABASE}?host={home}"
        _run([str(self._venv / "bin/bgd"), "migrate", "apply", address], cwd=self.root)
        return address

    def _start_redis(self) -> int:
        program = shutil.which("redis-server")
        assert program is not None
        port = free_port()
        argv = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        service = Service([*argv, "--dir", str(self.root)], self.root / "redis.log")
        service.start()
        self._services.append(service)
        wait_for(lambda: listens(port), "redis-server listens")
        return port

    def _configuration(self, sql: str | None, redis_port: int) -> str:
        """The configuration that users deploy, with the addresses and files of this machine."""
        text = (DEPLOYMENT / ("cluster.yml" if sql else "cache.yml")).read_text()
        here = {
            "[::]:50051": f"127.0.0.1:{self.port}",
            "insecure-mode: false": f"insecure-mode: {json.dumps(not self.tls)}",
            "/etc/buildgrid/": f"{self.root}/",
            "/var/lib/buildgrid/cas": str(self.store),
            "host: redis": "host: 127.0.0.1",
            "port: 6379": f"port: {redis_port}",
        }
        if sql:
            here["postgresql://buildgrid@postgres/buildgrid"] = sql
            here["bot-session-keepalive-timeout: 60"] = "bot-session-keepalive-timeout: 10"
            here["session-expiry-timer-interval: 5"] = "session-expiry-timer-interval: 1"
        for theirs, ours in here.items():
            assert theirs in text, theirs
            text = text.replace(theirs, ours)
        if not self.tls:
            text = re.sub(r"    credentials:\n(      .*\n)+", "", text)
        return text

    def _make_certificate(self) -> None:
        """A key, and a certificate for this machine that clients are given to trust."""
        (self.root / "tls").mkdir()
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
        files = [f"-{name}" for name in ("x509", "nodes")]
        files += ["-keyout", str(self.root / "tls/server.key")]
        files += ["-out", str(self.certificate), "-subj", "/CN=localhost", "-addext", names]
        # Pants' TLS takes no authority's certificate for a server's.
        files += ["-addext", "basicConstraints=critical,CA:FALSE"]
        _run(["openssl", "req", "-newkey", "rsa:2048", "-days", "2", *files])


@dataclass
class _Temporary(Service):
    """A service with a directory of its own that goes with it."""

    home: Path | None = None

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        super().stop(signal_number)
        if self.home is not None:
            shutil.rmtree(self.home, ignore_errors=True)


def executing(cluster: Cluster, subject: str = WRITERS, **signed: Any) -> dict[str, str]:
    """The variables that have a `./pants` build on the cluster's workers."""
    return {
        **client(cluster, subject, **signed),
        "PANTS_CONFIG_FILES": "+['pants.remote.toml', 'pants.remote-execution.toml']",
        "PANTS_REMOTE_EXECUTION_ADDRESS": cluster.address,
        "PANTS_REMOTE_EXECUTION_APPEND_ONLY_CACHES_BASE_PATH": str(cluster.caches),
    }


def client(cluster: Cluster, subject: str, **signed: Any) -> dict[str, str]:
    """The variables that point a `./pants` to the cluster, as a site's would.

    `subject` and `signed` are those of `token`.
    """
    text = token(subject, **signed)
    # A forged one takes the place of no other.
    file = cluster.root / f"token-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    file.write_text(text)
    return {
        "PANTS_CONFIG_FILES": "pants.remote.toml",
        "PANTS_REMOTE_STORE_ADDRESS": cluster.address,
        "PANTS_REMOTE_OAUTH_BEARER_TOKEN_PATH": str(file),
        **({"PANTS_REMOTE_CA_CERTS_PATH": str(cluster.certificate)} if cluster.tls else {}),
    }


@contextlib.contextmanager
def checkout(root: Path, cluster: Cluster) -> Iterator[Checkout]:
    """A checkout below `root` with vecadd, whose rows the cluster's workers build; its caches are its own."""
    env = {
        **executing(cluster),
        "PANTS_LOCAL_STORE_DIR": str(root / "store"),
        "PANTS_NAMED_CACHES_DIR": str(root / "named"),
    }
    with Checkout(root / "checkout", env) as made:
        made.write("images/pins.py", PINS)
        made.add_fixture("vecadd", recipe("vecadd"))
        yield made
