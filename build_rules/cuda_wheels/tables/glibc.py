"""manylinux policies, and the symbols that we define ourselves to meet them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from cuda_wheels.tables.accelerators import MACHINES

AUTO = "auto"


@dataclass(frozen=True)
class Policy:
    """The newest symbol versions that a wheel of a manylinux policy may need."""

    name: str
    glibc: str
    glibcxx: str
    cxxabi: str
    gcc: str

    @property
    def ceilings(self) -> dict[str, str]:
        """Version namespace of ELF symbols -> the newest version allowed."""
        return {
            "GLIBC": self.glibc,
            "GLIBCXX": self.glibcxx,
            "CXXABI": self.cxxabi,
            "GCC": self.gcc,
        }


# Source: manylinux-policy.json of auditwheel 6.8.2, x86_64 (on aarch64 GCC_ differs from
# manylinux_2_34 on). A policy also limits which libraries may be needed; auditwheel checks that.
POLICIES: tuple[Policy, ...] = (
    Policy("manylinux_2_17", "2.17", "3.4.19", "1.3.7", "4.8.0"),
    Policy("manylinux_2_24", "2.24", "3.4.22", "1.3.10", "4.8.0"),
    Policy("manylinux_2_26", "2.26", "3.4.22", "1.3.10", "4.8.0"),
    Policy("manylinux_2_27", "2.27", "3.4.24", "1.3.11", "7.0.0"),
    Policy("manylinux_2_28", "2.28", "3.4.24", "1.3.11", "7.0.0"),
    Policy("manylinux_2_31", "2.31", "3.4.28", "1.3.12", "7.0.0"),
    Policy("manylinux_2_34", "2.34", "3.4.29", "1.3.13", "7.0.0"),
    Policy("manylinux_2_35", "2.35", "3.4.30", "1.3.13", "12.0.0"),
    Policy("manylinux_2_36", "2.36", "3.4.30", "1.3.13", "12.0.0"),
    Policy("manylinux_2_38", "2.38", "3.4.30", "1.3.13", "12.0.0"),
    Policy("manylinux_2_39", "2.39", "3.4.33", "1.3.15", "14.0.0"),
    Policy("manylinux_2_40", "2.40", "3.4.33", "1.3.15", "14.0.0"),
    Policy("manylinux_2_41", "2.41", "3.4.33", "1.3.15", "14.0.0"),
)


# Source: PEP 600, "Legacy manylinux tags": each is a name of manylinux_2_X.
ALIASES = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_ALIAS = re.compile(rf"({'|'.join(ALIASES)})(?![0-9])")
# However the number of glibc is written; a platform tag says the machine too.
_WRITTEN = re.compile(r"(?:manylinux)?[-_.]?2[-_.](\d+)")


@dataclass(frozen=True)
class Shim:
    """A symbol that a wheel defines for itself, hidden, so as not to need a newer library.

    `version` is what it would need otherwise. Only a definition that is right in every program
    may stand here: `reason` says why it is needed, `proof` why it is right.
    """

    symbol: str
    version: str
    c_source: str
    reason: str
    proof: str


SHIMS: tuple[Shim, ...] = (
    Shim(
        symbol="__libc_single_threaded",
        version="GLIBC_2.32",
        c_source='__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;',
        reason="libstdc++'s inline reference counting reads it when the host's glibc has it.",
        proof=(
            "0 says that the program may have several threads: counters are then changed "
            "atomically, which is right in every program. Hidden, it is seen by no other object."
        ),
    ),
)


def find_policy(name: str) -> Policy | None:
    """The policy of that name or of a platform tag such as `manylinux_2_28_x86_64`."""
    return next(
        (
            policy
            for policy in POLICIES
            if name == policy.name or name in (f"{policy.name}_{m}" for m in MACHINES.values())
        ),
        None,
    )


def platform_problem(policy: str) -> str | None:
    """Why `policy` is none that wheels can be repaired to; None if it is one."""
    names = [known.name for known in POLICIES]
    if policy == AUTO or policy in names:
        return None
    meant = _meant(policy)
    hint = f" {meant}" if meant else ""
    return (
        f"`[cuda-wheels].platform_policy` is `{policy}`, which is no manylinux policy known here."
        f"{hint} Use `{AUTO}` or one of {', '.join(names)}."
    )


def _meant(policy: str) -> str:
    """Which policy serves those that `policy` is for, as a sentence; empty where it says no glibc."""
    alias = _ALIAS.match(policy)
    glibc = ALIASES[alias[1]] if alias else None
    written = _WRITTEN.match(policy)
    if written:
        glibc = f"2.{written[1]}"
    if glibc is None:
        close = difflib.get_close_matches(policy, [AUTO], n=1)
        return f"Did you mean `{AUTO}`?" if close else ""
    # The newest that the hosts of `policy` can take.
    served = [known.name for known in POLICIES if _key(known.glibc) <= _key(glibc)]
    if alias and served:
        return f"`{alias[1]}` is the old name of `{served[-1]}`: use that."
    if served:
        return f"Did you mean `{served[-1]}`?"
    return f"It is for glibc {glibc}; the oldest one known here is `{POLICIES[0].name}`."


def platform_tag(policy: str, arch: str) -> str:
    """`manylinux_2_28_x86_64` for `manylinux_2_28` and `amd64`; `auto` stays."""
    return policy if policy == AUTO else f"{policy}_{MACHINES.get(arch, arch)}"


def shims_for(platform: str) -> tuple[str, ...]:
    """The symbols to define in a wheel for a platform tag or policy: those newer than it allows.

    For `auto` all of them: the wheel then runs on older hosts too.
    """
    policy = find_policy(platform)
    if policy is None:
        return tuple(shim.symbol for shim in SHIMS) if platform == AUTO else ()
    return tuple(shim.symbol for shim in SHIMS if exceeds(shim.version, policy))


def exceeds(version: str, policy: Policy) -> bool:
    """Whether a symbol version such as `GLIBC_2.32` is newer than `policy` allows.

    Versions of other libraries, and names without a number (`GLIBC_PRIVATE`), are not judged.
    """
    namespace, _, number = version.rpartition("_")
    ceiling = policy.ceilings.get(namespace)
    if ceiling is None or not re.fullmatch(r"\d+(\.\d+)*", number):
        return False
    return _key(number) > _key(ceiling)


def _key(number: str) -> tuple[int, ...]:
    """Comparable: 7.0.0 and 7 are the same version."""
    parts = [int(part) for part in number.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
