"""Which prebuilt is taken, without a process: what each one is, the tests say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pants.engine.addresses import Address
from pants.testutil.option_util import create_subsystem
from pants.testutil.rule_runner import MockGet, run_rule_with_mocks

from cuda_wheels.rules.inspect import declared_wheel
from cuda_wheels.rules.inspect_test import SPEC
from cuda_wheels.rules.prebuilt import (
    Group,
    GroupRequest,
    PrebuiltRequest,
    StandIn,
    StandInRequest,
    TriedPrebuilt,
    fetch_document,
    find_stand_in,
    unavailable,
)
from cuda_wheels.rules.repair import RepairedWheel
from cuda_wheels.rules.spec import WheelSpec
from cuda_wheels.rules.stage import StageFailure
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.sources import PrebuiltWheel
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables.upstreams import pyg_index
from cuda_wheels.wheel_facts import WheelFacts

FACTS = WheelFacts("x-1.0-cp312-cp312-linux_x86_64.whl", "x", "1.0", "cp312", "cp312", (), "", 1)
GOOD = TriedPrebuilt("x.whl", RepairedWheel("x.whl"), FACTS)
BAD = TriedPrebuilt("x.whl", reasons=("a.so needs GLIBC_2.34.",))
PREBUILT = PrebuiltWheel("thing-cu130", "1.0+pt211cu130", "1" * 64)


def spec(name: str, prebuilt: PrebuiltWheel | None = PREBUILT) -> WheelSpec:
    address = Address("packages/thing", target_name=name)
    return dataclasses.replace(SPEC, address=address, prebuilt=prebuilt, gpu_archs=("9.0",))


THING, OTHER = spec("thing"), spec("other")


def stand_in(tried: dict[WheelSpec, TriedPrebuilt], *, prefer: bool = True, **more: Any) -> StandIn:
    """What becomes of the first of a group; asking for what is not in `tried` is an error."""
    group = more.get("group", tuple(tried))
    probed: list[str] = []

    def look_at(request: PrebuiltRequest) -> TriedPrebuilt:
        assert probed, "the fetch program has no settings of this session yet"
        return tried[request.spec]

    return run_rule_with_mocks(
        find_stand_in,
        rule_args=[
            StandInRequest(group[0]),
            create_subsystem(CudaWheelsSubsystem, prefer_prebuilt=prefer),
        ],
        mock_gets=[
            MockGet(Group, (GroupRequest,), lambda request: Group(group)),
            MockGet(Host, (), lambda: probed.append("host")),
            MockGet(TriedPrebuilt, (PrebuiltRequest,), look_at),
        ],
    )


def test_a_prebuilt_that_does_is_taken() -> None:
    taken = stand_in({THING: GOOD})
    assert taken == StandIn("x.whl", GOOD.wheel, FACTS)
    assert taken.document(THING) == {
        "origin": "prebuilt",
        "prebuilt": {
            "file": "x.whl",
            "name": "thing-cu130",
            "version": "1.0+pt211cu130",
            "sha256": "1" * 64,
            "reasons": [],
        },
    }


def test_one_that_does_not_says_why_in_the_facts() -> None:
    refused = stand_in({THING: BAD})
    assert refused.facts is None and refused.reasons == BAD.reasons
    document = refused.document(THING)
    assert document["origin"] == "compiled"
    assert document["prebuilt"]["reasons"] == ["a.so needs GLIBC_2.34."]


@pytest.mark.parametrize("group", [(THING,), (spec("thing", None),)])
def test_nothing_is_asked_unless_it_is_preferred(group: tuple[WheelSpec, ...]) -> None:
    assert stand_in({}, prefer=group[0].prebuilt is None, group=group) == StandIn()
    assert StandIn().document(THING) == {"origin": "compiled"}


def test_a_group_is_taken_whole() -> None:
    assert stand_in({THING: GOOD, OTHER: GOOD}).facts == FACTS


def test_a_group_of_which_one_is_refused() -> None:
    (reason,) = stand_in({THING: GOOD, OTHER: BAD}).reasons
    assert "packages/thing:other is compiled: a.so needs GLIBC_2.34." in reason


def test_nothing_is_fetched_where_one_of_the_group_has_no_prebuilt() -> None:
    (reason,) = stand_in({}, group=(THING, spec("other", None))).reasons
    assert "packages/thing:other is compiled: it has no `prebuilt`." in reason


@pytest.mark.parametrize(("mine", "its"), [("fetched", None), (None, "fetched")])
def test_a_pin_that_does_not_match_is_an_error(mine: str | None, its: str | None) -> None:
    failed = TriedPrebuilt(failure=StageFailure("prebuilt", "No wheel is the one."))
    result = stand_in({THING: GOOD if mine else failed, OTHER: GOOD if its else failed})
    assert result.failure is not None and result.facts is None and not result.reasons
    assert "No wheel is the one." in result.failure.message
    assert ("packages/thing:other" in result.failure.message) is bool(mine)


def test_an_error_names_the_option_to_do_without() -> None:
    message = unavailable(PREBUILT, StageFailure("fetch", "Asking it failed.")).message
    assert "Asking it failed." in message and "--no-cuda-wheels-prefer-prebuilt" in message


def test_a_prebuilt_keeps_its_name_and_may_serve_more_gpus() -> None:
    declared = declared_wheel(THING, PREBUILT)
    assert (declared.distribution, declared.version) == ("thing-cu130", "1.0+pt211cu130")
    assert (declared.cubins, declared.ptx, declared.serves) == ((), (), ("9.0",))
    assert declared.platform == "manylinux_2_28_x86_64" and declared.links_torch
    assert declared_wheel(dataclasses.replace(THING, native=False), PREBUILT).serves == ()


def test_where_a_prebuilt_is_asked_for() -> None:
    document = fetch_document(PREBUILT, THING)
    assert "page" not in document and document["tags"] == ["cp312", "x86_64"]
    assert document["unpack"] is False and document["sha256"] == "1" * 64
    pyg = dataclasses.replace(PREBUILT, index="pyg")
    assert fetch_document(pyg, THING)["page"] == pyg_index("2.11.0", "cu130")
