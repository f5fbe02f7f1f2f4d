from __future__ import annotations

from cuda_wheels.tables.system_headers import SYSTEM_HEADERS, missing_header, unknown_header


def test_what_includes_a_header_finds_it_among_its_content() -> None:
    for name, header in SYSTEM_HEADERS.items():
        assert any(name == part or name.startswith(f"{part}/") for part in header.content)


def test_an_unknown_header_is_answered_with_the_nearest_known_one() -> None:
    assert unknown_header("google/dense_hash_map") is None
    problem = unknown_header("google/dense_hash_maps") or ""
    assert "Did you mean 'google/dense_hash_map'?" in problem
    assert "tables/system_headers.py" in problem
    assert "Did you mean" not in (unknown_header("boost/any.hpp") or "")


def test_a_missing_header_says_what_installs_it() -> None:
    problem = missing_header("google/dense_hash_map")
    assert "apt-get install libsparsehash-dev" in problem
    assert "dnf install sparsehash-devel" in problem
