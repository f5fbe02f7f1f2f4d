from __future__ import annotations

import json
from typing import Iterable

import pytest
from pants.core.goals.package import BuiltPackage, BuiltPackageArtifact
from pants.core.goals.publish import PublishProcesses
from pants.core.register import rules as core_rules
from pants.core.util_rules import environments
from pants.engine.addresses import Address
from pants.engine.fs import CreateDigest, Digest, DigestContents, FileContent
from pants.testutil.rule_runner import QueryRule, RuleRunner

from cuda_wheels import register
from cuda_wheels.goals.publish import (
    CLIENT_LOCKS,
    PublishAddressError,
    PublishWheelhouseFieldSet,
    PublishWheelhouseRequest,
    destination,
)
from cuda_wheels.rules.programs import TOOL_LOCKS

HOUSE = "linux-amd64/cu130/torch2.11.0-cp312"
SECRETS = ("TWINE_USERNAME", "TWINE_PASSWORD", "ORAS_USER", "ORAS_PASS")
ROW = 'arch="amd64", accel="cu130", torch="2.11.0", cuda_arch=["8.0"]'


@pytest.mark.parametrize(
    ("address", "program", "request_"),
    [
        ("file:///srv/wheels", "publish_file", {"index": "/srv/wheels"}),
        ("file:/srv/wheels", "publish_file", {"index": "/srv/wheels"}),
        ("file://localhost/srv/a%20b", "publish_file", {"index": "/srv/a b"}),
        (
            "oci://registry.example:5000/team/wheels",
            "publish_oci",
            {"registry": "https://registry.example:5000", "repository": "team/wheels"},
        ),
        (
            "oci:http://localhost:5000/wheels",
            "publish_oci",
            {"registry": "http://localhost:5000", "repository": "wheels"},
        ),
        (
            "pypi:https://wheels.example/team",
            "publish_pypi",
            {
                "upload": "https://wheels.example/team",
                "simple": "https://wheels.example/team/simple/",
            },
        ),
        (
            "pypi:https://wheels.example/upload/",
            "publish_pypi",
            {
                "upload": "https://wheels.example/upload/",
                "simple": "https://wheels.example/index/",
            },
        ),
    ],
)
def test_an_address(address: str, program: str, request_: dict[str, str]) -> None:
    simple = {"https://wheels.example/upload/": "https://wheels.example/index/"}
    found = destination(address, simple)
    assert (found.program, dict(found.request)) == (program, request_)
    # What a folder needs is neither a lock nor a password.
    assert bool(found.locks) == bool(found.variables) == (program != "publish_file")


@pytest.mark.parametrize(
    "address",
    [
        *(
            "/srv/wheels",
            "file:srv",
            "file://host/srv",
            "file:///",
            "https://x/y",
            "file:///a?b",
            "",
        ),
        *("oci://host", "oci://host/", "oci://host/Upper", "oci:ftp://host/a", "oci:host/a"),
        *("pypi:wheels.example", "pypi:ftp://x/", "pypi:https://x/?a=b", "pypi:"),
    ],
)
def test_no_address(address: str) -> None:
    with pytest.raises(PublishAddressError, match="file:///srv/wheels"):
        destination(address, {})


@pytest.mark.parametrize("kind", ["pypi:https:", "oci:", "oci:http:"])
def test_a_password_in_an_address_is_refused_and_not_repeated(kind: str) -> None:
    with pytest.raises(PublishAddressError, match="TWINE_PASSWORD") as caught:
        destination(f"{kind}//ada:correct-horse@host/a", {})
    assert "correct-horse" not in str(caught.value) and "host/a" in str(caught.value)


@pytest.fixture
def rule_runner() -> RuleRunner:
    return RuleRunner(
        rules=[
            *core_rules(),
            *environments.rules(),
            *register.rules(),
            QueryRule(PublishProcesses, [PublishWheelhouseRequest]),
        ],
        target_types=register.target_types(),
        objects=dict(register.build_file_aliases().objects),
    )


def publish(
    rule_runner: RuleRunner, more: str, *options: str, env: Iterable[str] = ()
) -> PublishProcesses:
    rule_runner.write_files({"house/BUILD": f"cuda_wheelhouse(wheels=['x'], {ROW}, {more})"})
    rule_runner.set_options(options, env_inherit={"PATH", "HOME", "PYENV_ROOT", *env})
    files = [FileContent(f"{HOUSE}/tags.json", b"{}")]
    package = BuiltPackage(
        rule_runner.request(Digest, [CreateDigest(files)]), (BuiltPackageArtifact(HOUSE),)
    )
    fields = PublishWheelhouseFieldSet.create(rule_runner.get_target(Address("house")))
    request = PublishWheelhouseRequest(fields, (package,))
    return rule_runner.request(PublishProcesses, [request])


def test_where_a_wheelhouse_goes(rule_runner: RuleRunner) -> None:
    (nowhere,) = publish(rule_runner, "")
    assert nowhere.process is None and "publish_to" in (nowhere.description or "")
    option = "--cuda-publish-to=['file:///srv/a', 'file:///srv/b']"
    named = publish(rule_runner, "", option, "--cuda-publish-date=2026.11.30")
    assert [one.description for one in named] == ["file:///srv/a", "file:///srv/b"]
    (own,) = publish(rule_runner, "publish_to=['file:///srv/c']", option, "--cuda-publish-dry-run")
    assert own.names == (HOUSE,) and own.process is not None
    assert "dry run" in (own.description or "")
    digest = own.process.process.input_digest
    contents = rule_runner.request(DigestContents, [digest])
    files = {file.path: file.content for file in contents}
    assert f"{HOUSE}/tags.json" in files
    assert "cuda_wheels/sandbox/publish_file.py" in files
    document = json.loads(files["request.json"])
    document.pop("cache")
    assert document == {
        "house": HOUSE,
        "row": HOUSE,
        "index": "/srv/c",
        "date": "",
        "dry_run": True,
    }


def test_passwords_are_handed_on_in_the_environment_alone(
    rule_runner: RuleRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, f"secret-{name}")
    rule_runner.write_files({TOOL_LOCKS[name]: "" for name in CLIENT_LOCKS})
    to = "publish_to=['pypi:http://localhost:1/', 'oci:http://localhost:1/a']"
    upload, registry = publish(rule_runner, to, env=SECRETS)
    for one, own, other in ((upload, "TWINE", "ORAS"), (registry, "ORAS", "TWINE")):
        assert one.process is not None
        process = one.process.process
        handed = {name for name in process.env if "secret-" in process.env[name]}
        assert handed == {name for name in SECRETS if name.startswith(own)} and other not in handed
        contents = rule_runner.request(DigestContents, [process.input_digest])
        assert not any(b"secret-" in file.content for file in contents)
        assert not any("secret-" in word for word in (*process.argv, *one.names))
        assert "secret-" not in (one.description or "")
