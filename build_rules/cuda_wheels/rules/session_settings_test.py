"""How a process hears of its session's settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pants.engine.process import Process, ProcessResult
from pants.testutil.rule_runner import QueryRule, RuleRunner

from cuda_wheels.rules import session_settings
from cuda_wheels.rules.programs import module_file
from cuda_wheels.rules.session_settings import LINKS, SessionSettings

READER = "cuda_wheels.sandbox.session_settings"


@pytest.fixture
def rule_runner() -> RuleRunner:
    return RuleRunner(
        rules=[
            *session_settings.rules(),
            QueryRule(SessionSettings, []),
            QueryRule(ProcessResult, [Process]),
        ],
    )


def settings(rule_runner: RuleRunner, *options: str, proxy: str = "") -> SessionSettings:
    rule_runner.set_options(
        [*options], env={"https_proxy": proxy} if proxy else {}, env_inherit={"PATH"}
    )
    return rule_runner.request(SessionSettings, [])


def test_the_settings_are_those_of_the_session(rule_runner: RuleRunner) -> None:
    found = settings(
        rule_runner,
        "--python-repos-indexes=['https://index.example/simple']",
        "--python-repos-find-links=['file:///wheels']",
        "--cuda-wheels-source-mirrors={'https://a.example/': 'https://b.example/'}",
        proxy="http://proxy.example:3128",
    )
    content = json.loads(found.content)
    assert content["indexes"] == ["https://index.example/simple"]
    assert content["find_links"] == ["file:///wheels"]
    assert content["source_mirrors"] == {"https://a.example/": "https://b.example/"}
    assert content["proxies"] == {"https_proxy": "http://proxy.example:3128"}


def test_other_settings_have_another_name(rule_runner: RuleRunner) -> None:
    one = settings(rule_runner, "--python-repos-indexes=['https://one.example']")
    other = settings(rule_runner, "--python-repos-indexes=['https://other.example']")
    assert one.name != other.name
    assert settings(rule_runner, "--python-repos-indexes=['https://one.example']") == one


def test_the_name_reaches_a_process_and_not_its_key(
    rule_runner: RuleRunner, tmp_path: Path
) -> None:
    def look(found: SessionSettings, command: str) -> str:
        process = Process(
            ["/bin/sh", "-c", f"ls {LINKS}; echo x >> {tmp_path}/{command}"],
            description=f"Look {command}",
            env={"PATH": "/usr/bin:/bin"},
            append_only_caches=found.append_only_caches,
        )
        return rule_runner.request(ProcessResult, [process]).stdout.decode().strip()

    one, other = SessionSettings('{"indexes": ["one"]}'), SessionSettings('{"indexes": ["other"]}')
    assert look(one, "first") == one.name
    assert look(other, "second") == other.name
    # The answer for the one session is the cached one for the other: the keys are the same.
    assert look(other, "first") == one.name
    assert (tmp_path / "first").read_text() == "x\n"


def test_where_places_are_in_the_key_no_name_is_told(rule_runner: RuleRunner) -> None:
    found = settings(rule_runner, "--remote-execution-append-only-caches-base-path=/caches")
    assert found.append_only_caches == {}


def test_the_programs_look_where_the_link_is() -> None:
    path = module_file(READER)
    assert path is not None
    assert f'LINKS = "{LINKS}"\n' in Path(__file__).parents[2].joinpath(path).read_text()
