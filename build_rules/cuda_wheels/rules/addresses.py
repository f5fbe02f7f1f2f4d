"""The targets that a field names, where a wrong name is a problem of that target alone.

Pants' own resolution raises, which would end a goal for all targets that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass

from pants.base.exceptions import MappingError
from pants.build_graph.address import AddressParseException
from pants.engine.addresses import Address, UnparsedAddressInputs
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import SpecialCasedDependencies, Target, Targets


@dataclass(frozen=True)
class NamedTargetRequest:
    """One address as a field of `owner` spells it."""

    owner: Address
    field: str
    value: str


@dataclass(frozen=True)
class NamedTargets:
    """The targets that are there, and a sentence for each name of none."""

    targets: tuple[Target, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class NamedTargetsRequest:
    """The addresses in a field of a target."""

    owner: Address
    field: str
    values: tuple[str, ...]

    @classmethod
    def of(cls, field: SpecialCasedDependencies) -> NamedTargetsRequest:
        """What a field names."""
        return cls(field.address, field.alias, tuple(field.value or ()))


@rule
async def find_named_target(request: NamedTargetRequest) -> NamedTargets:
    try:
        targets = await Get(
            Targets,
            UnparsedAddressInputs(
                [request.value],
                owning_address=request.owner,
                description_of_origin=f"`{request.field}` of {request.owner}",
            ),
        )
    except (MappingError, AddressParseException) as error:
        return NamedTargets((), (f"`{request.field}` names no target: {error}",))
    return NamedTargets(tuple(targets))


@rule
async def find_named_targets(request: NamedTargetsRequest) -> NamedTargets:
    found = await MultiGet(
        Get(NamedTargets, NamedTargetRequest(request.owner, request.field, value))
        for value in request.values
    )
    return NamedTargets(
        tuple(target for one in found for target in one.targets),
        tuple(problem for one in found for problem in one.problems),
    )


def rules():
    return collect_rules()
