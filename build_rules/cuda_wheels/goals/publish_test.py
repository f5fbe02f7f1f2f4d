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
    CLIENT_VARIABLES,
    PublishWheelhouseFieldSet,
    PublishWheelhouseRequest,
    destination,
)
from cuda_wheels.rules.programs import TOOL_LOCKS

HOUSE = "linux-amd64/cu130/torch2.11.0-cp312"
SECRETS = ("TWINE_USERNAME", "TWINE_PASSWORD", "ORAS_USER", "ORAS_PASS")
ROW = 'arch="amd64", accel="cu130", torch="2.11.0", cuda_arch=["8.0"]'


@pytest.mark.parametrize(
    ("address", "locks", "variables"),
    [
        # What a folder needs is neither a lock nor a password.
        ("file:///srv/wheels", (), ()),
        ("oci://host/a", CLIENT_LOCKS, (*CLIENT_VARIABLES, "ORAS_USER", "ORAS_PASS")),
        (
            "pypi:https://host/",
            CLIENT_LOCKS,
            (*CLIENT_VARIABLES, "TWINE_USERNAME", "TWINE_PASSWORD"),
        ),
    ],
)
def test_what_a_client_of_an_address_is_given(
    address: str, locks: tuple[str, ...], variables: tuple[str, ...]
) -> None:
    found = destination(address, {})
    assert (found.locks, found.variables) == (locks, variables)


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
