from __future__ import annotations

import pytest

from cuda_wheels.tables.patches import PatchHeader, parse_header, selects

DIFF = "--- a/x.cu\n+++ b/x.cu\n@@ -1 +1 @@\n-CUDA: <1\n+Torch: <1\n"


def test_full_header() -> None:
    text = (
        "Reason: CUDA 13 has no thrust::unary_function.\n"
        "  It was deprecated before.\n"
        "CUDA: >=13.0, <14\n"
        "torch: >=2.9\n"
        "Source: the change log of CCCL 3\n"
        "\n" + DIFF
    )
    header = parse_header("0001-x.patch", text)
    assert header == PatchHeader(
        reason="CUDA 13 has no thrust::unary_function. It was deprecated before.",
        cuda=">=13.0, <14",
        torch=">=2.9",
        source="the change log of CCCL 3",
    )
    assert header.ranges == "CUDA: >=13.0, <14, Torch: >=2.9"


def test_reason_alone_and_nothing_is_read_from_the_diff() -> None:
    header = parse_header("0001-x.patch", f"Reason: it hangs\n{DIFF}")
    assert header == PatchHeader("it hangs")
    assert header.ranges == "for every row"


def test_lines_of_a_mail_are_ignored() -> None:
    text = "From: someone\nDate: today\nSubject: [PATCH] x\n\nfree text: here\nReason: it hangs\n"
    assert parse_header("0001-x.patch", text + DIFF) == PatchHeader("it hangs")


@pytest.mark.parametrize(
    "header, parts",
    [
        ("", ("no `Reason:`", "before the first `---`")),
        ("Reason:\n", ("no `Reason:`",)),
        ("Reason: x\nCUDA: 13\n", ("`CUDA: 13` is no version range", "CUDA: >=13.0")),
        ("Reason: x\nCUDA: newest\n", ("`CUDA: newest`",)),
        ("Reason: x\nCUDA:\n", ("`CUDA: ` is no version range",)),
        ("Reason: x\nTorch: >=two\n", ("`Torch: >=two`", "Torch: >=2.9")),
        ("Reason: x\nTorhc: >=2.9\n", ("`Torhc: >=2.9` is not known", "write `Torch:`")),
        ("Reasons: x\n", ("write `Reason:`", "no `Reason:`")),
        ("Reason: x\nCUDA: >=12\nCUDA: <14\n", ("two lines `CUDA:`",)),
        ("CUDA: 13\nTorch: 2\n", ("no `Reason:`", "`CUDA: 13`", "`Torch: 2`")),
    ],
)
def test_all_faults_of_a_header_are_named(header: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as error:
        parse_header("0001-why.patch", header + DIFF)
    assert str(error.value).startswith("0001-why.patch: ")
    for part in parts:
        assert part in str(error.value)


def test_a_reason_below_the_first_dashes_does_not_count() -> None:
    with pytest.raises(ValueError, match="no `Reason:`"):
        parse_header("0001-x.patch", f"{DIFF}Reason: too late\n")


@pytest.mark.parametrize(
    "cuda, torch, cuda_version, torch_version, expected",
    [
        (None, None, "13.0", "2.11.0", True),
        (None, None, None, None, True),
        (">=13.0", None, "13.0", "2.11.0", True),
        (">=13.0", None, "12.9", "2.11.0", False),
        (">=13.0", None, "13.2", None, True),
        (">=13.0", None, None, "2.11.0", False),
        ("<13", None, "12.9", None, True),
        ("==13.0", None, "13.0", None, True),
        (None, ">=2.9", "13.0", "2.9.0", True),
        (None, ">=2.9", "13.0", "2.10.0", True),
        (None, ">=2.9", "13.0", "2.8.0", False),
        (None, ">=2.9", "13.0", None, False),
        (None, "==2.11.0", "13.0", "2.11.0+cu130", True),
        (None, ">=2.9", "13.0", "2.11.0rc1", True),
        (None, ">=2.9", "13.0", "latest", False),
        (">=13.0", ">=2.11", "13.0", "2.9.1", False),
        (">=13.0", ">=2.11", "12.8", "2.11.0", False),
        (">=13.0", ">=2.11", "13.0", "2.11.0", True),
    ],
)
def test_selects(
    cuda: str | None,
    torch: str | None,
    cuda_version: str | None,
    torch_version: str | None,
    expected: bool,
) -> None:
    header = PatchHeader("x", cuda=cuda, torch=torch)
    assert selects(header, cuda_version, torch_version) is expected


def test_a_requirement_that_a_patch_loosens() -> None:
    header = parse_header("0001-x.patch", f"Reason: a\nRelaxes: cumm>=0.7.11,<0.8.0\n{DIFF}")
    assert header.relaxes == "cumm>=0.7.11,<0.8.0"


@pytest.mark.parametrize("value", ["cumm", "<0.8", "cumm 0.8", "cumm<0.8,"])
def test_what_is_no_requirement(value: str) -> None:
    with pytest.raises(ValueError, match="is no requirement"):
        parse_header("0001-x.patch", f"Reason: a\nRelaxes: {value}\n{DIFF}")
