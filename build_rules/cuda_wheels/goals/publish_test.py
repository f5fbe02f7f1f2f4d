from __future__ import annotations

import json

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
    PublishAddressError,
    PublishWheelhouseFieldSet,
    PublishWheelhouseRequest,
    index_path,
)

HOUSE = "linux-amd64/cu130/torch2.11.0-cp312"
ROW = 'arch="amd64", accel="cu130", torch="2.11.0", cuda_arch=["8.0"]'


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///srv/wheels", "/srv/wheels"),
        ("file:/srv/wheels", "/srv/wheels"),
        ("file://localhost/srv/a%20b", "/srv/a b"),
    ],
)
def test_a_folder(address: str, path: str) -> None:
    assert index_path(address) == path


@pytest.mark.parametrize(
    "address",
    ["/srv/wheels", "file:srv", "file://host/srv", "file:///", "https://x/y", "file:///a?b", ""],
)
def test_no_folder(address: str) -> None:
    with pytest.raises(PublishAddressError, match="file:///srv/wheels"):
        index_path(address)


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


def publish(rule_runner: RuleRunner, more: str, *options: str) -> PublishProcesses:
    rule_runner.write_files({"house/BUILD": f"cuda_wheelhouse(wheels=['x'], {ROW}, {more})"})
    rule_runner.set_options(options, env_inherit={"PATH", "HOME", "PYENV_ROOT"})
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
    digest = own.process.process.input_digest
    contents = rule_runner.request(DigestContents, [digest])
    files = {file.path: file.content for file in contents}
    assert f"{HOUSE}/tags.json" in files
    assert "cuda_wheels/sandbox/publish_file.py" in files
    assert json.loads(files["request.json"]) == {
        "house": HOUSE,
        "row": HOUSE,
        "index": "/srv/c",
        "date": "",
        "dry_run": True,
    }
