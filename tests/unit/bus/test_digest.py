"""Canonical JSON and digests."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.digest import canonical_json, digest_of, short
from bus.messages.artifacts import FileEntry, Manifest
from bus.messages.profiles import RuntimeProfile

ZERO = "0" * 64
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_the_canonical_form_is_written_out() -> None:
    assert canonical_json({"b": 1, "a": [True, None, "\u00e9"]}) == '{"a":[true,null,"\u00e9"],"b":1}'.encode()


def test_a_manifest_has_the_digest_of_its_canonical_json() -> None:
    manifest = Manifest(files=(FileEntry(path="a", size_bytes=1, sha256=ZERO),))
    text = f'{{"files":[{{"path":"a","sha256":"{ZERO}","size_bytes":1}}]}}'
    assert manifest.digest() == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@given(JSON)
def test_the_order_of_keys_does_not_matter(value: object) -> None:
    def turned(node: object) -> object:
        if isinstance(node, dict):
            return {key: turned(node[key]) for key in reversed(list(node))}
        return [turned(item) for item in node] if isinstance(node, list) else node

    assert digest_of(value) == digest_of(turned(value))


@pytest.mark.parametrize("value", [1.5, {"a": [0.1]}, float("nan")])
def test_a_float_has_no_identity(value: object) -> None:
    with pytest.raises(TypeError):
        canonical_json(value)


@pytest.mark.req("G1")
def test_another_value_is_another_profile() -> None:
    one, other = RuntimeProfile(name="a"), RuntimeProfile(name="a", batch_size=2)
    assert one.digest() != other.digest()
    assert one.digest() == RuntimeProfile(name="a").digest()


def test_the_short_form_is_for_the_screen() -> None:
    assert short("sha256:" + "ab" * 32) == "ab" * 6
