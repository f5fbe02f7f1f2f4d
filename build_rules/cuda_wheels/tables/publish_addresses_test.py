from __future__ import annotations

import pytest

from cuda_wheels.tables.publish_addresses import ORAS, TWINE, PublishAddressError, parse_address


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
    found = parse_address(address, simple)
    assert (found.program, dict(found.request)) == (program, request_)
    assert found.variables == {"publish_oci": ORAS, "publish_pypi": TWINE}.get(program)


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
        *("oci:https://[", "pypi:https://["),
        *("pypi:wheels.example", "pypi:ftp://x/", "pypi:https://x/?a=b", "pypi:"),
    ],
)
def test_no_address(address: str) -> None:
    with pytest.raises(PublishAddressError, match="file:///srv/wheels"):
        parse_address(address, {})


@pytest.mark.parametrize("kind", ["pypi:https:", "oci:", "oci:http:"])
def test_a_password_in_an_address_is_refused_and_not_repeated(kind: str) -> None:
    with pytest.raises(PublishAddressError, match="TWINE_PASSWORD") as caught:
        parse_address(f"{kind}//ada:correct-horse@host/a", {})
    assert "correct-horse" not in str(caught.value) and "host/a" in str(caught.value)
