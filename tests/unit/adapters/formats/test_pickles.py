"""Ordinary pickles are told from those that could do something, by what is harmless and not by what is dangerous."""

from __future__ import annotations

import datetime as dt
import io
import pickle  # noqa: TID251 -- the tests make pickles; only the product never loads one
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch

from adapters.formats import pickle_names
from adapters.formats.pickles import pickle_facts
from bus.messages.artifacts import PickleFacts
from tests.support import pickles
from tests.support.pickles import EVIL, PROTO2, PROTO4, named, text


def facts(data: bytes) -> tuple[PickleFacts, ...]:
    return pickle_facts("weights.bin", io.BytesIO(data), len(data))


def only(data: bytes) -> PickleFacts:
    (found,) = facts(data)
    return found


def saved(value: object, *, zipped: bool = True) -> bytes:
    target = io.BytesIO()
    torch.save(value, target, _use_new_zipfile_serialization=zipped)
    return target.getvalue()


def dumped(value: object, **options: Any) -> bytes:
    target = io.BytesIO()
    joblib.dump(value, target, **options)
    return target.getvalue()


def state() -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Embedding(5, 2), torch.nn.LayerNorm(2))
    return dict(model.state_dict())


# What models are saved as.


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(state, id="state"),
        pytest.param(lambda: torch.nn.Parameter(torch.ones(2)), id="parameter"),
        pytest.param(lambda: {"a": torch.ones(2, dtype=torch.bfloat16), "dtype": torch.float16}, id="bfloat16"),
        pytest.param(lambda: torch.ones(2, dtype=torch.float8_e4m3fn), id="float8"),
        pytest.param(lambda: torch.eye(3).to_sparse(), id="sparse"),
        pytest.param(lambda: torch.ones(3).untyped_storage(), id="storage"),
        pytest.param(lambda: [torch.device("cpu"), torch.Size([1, 2])], id="device-and-size"),
        pytest.param(lambda: torch.empty(2, device="meta"), id="meta"),
    ],
)
def test_what_torch_saves_only_rebuilds_tensors(value: Callable[[], object], zipped: bool) -> None:
    found = only(saved(value(), zipped=zipped))

    assert (found.verdict, found.member) == ("tensors", "archive/data.pkl" if zipped else "")
    assert found.reason == "it only rebuilds tensors and plain containers"
    assert found.imports
    assert found.path == "weights.bin"


def test_a_whole_torch_model_is_code() -> None:
    found = only(saved(torch.nn.Linear(2, 2)))

    assert (found.verdict, found.reason) == ("code", "it imports torch.nn.modules.linear.Linear")
    assert "torch._utils._rebuild_parameter" in found.imports


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numpy_values_only_rebuild_tensors(protocol: int) -> None:
    value = {
        "floats": np.arange(3.0),
        "scalar": np.float32(3),
        "texts": np.array(["long", "ä"]),
        "objects": np.array([1, "x", None], dtype=object),
        "dates": np.array(["2026-01-01"], dtype="M8[D]"),
        "flags": np.array([True]),
        "fortran": np.asfortranarray(np.ones((2, 3), dtype=np.float16)),
    }

    assert only(pickle.dumps(value, protocol)).verdict == "tensors"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_plain(protocol: int) -> None:
    value = {
        "lists": [1, -2, 3 << 100, 2.5, None, True, (), (1,), (1, 2, 3, 4)],
        "sets": [{1}, frozenset({2})],
        "bytes": [b"", b"xx" * 200, bytearray(b"yy")],
        "texts": ["", "ä\\n\n'\"", "\u20ac" * 100, "\ud800"],
        "containers": [OrderedDict(a=1), Counter("aab"), deque([1], 3), defaultdict(list, {"a": [1]}), complex(1, 2)],
        "times": [dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.timedelta(1)],
    }

    found = only(pickle.dumps(value, protocol))

    assert (found.verdict, found.reason) == ("plain", "it holds plain values only")


def test_joblib_arrays_between_the_instructions_are_passed_over() -> None:
    value = {"a": np.arange(300.0), "b": [np.ones((2, 3), dtype=np.int8), np.zeros((0, 4))], "c": np.array(["xy"])}

    assert only(dumped(value)).verdict == "tensors"


def test_joblib_arrays_of_objects_are_unreadable() -> None:
    found = only(dumped({"a": np.array([1, "x"], dtype=object)}))

    assert (found.verdict, found.reason) == (
        "unreadable",
        "it holds a joblib array whose bytes cannot be told from instructions",
    )


@pytest.mark.parametrize(
    ("method", "name"), [("zlib", "zlib"), ("gzip", "gzip"), ("bz2", "bzip2"), ("xz", "xz"), ("lzma", "lzma")]
)
def test_compressed_joblib_files_are_unreadable_and_say_why(method: str, name: str) -> None:
    found = only(dumped({"a": np.arange(300.0)}, compress=(method, 3)))

    assert (found.verdict, found.reason) == (
        "unreadable",
        f"it is a pickle compressed with {name}, which is not judged harmless",
    )


def test_an_array_of_plain_numbers_is_no_pickle() -> None:
    file, container = io.BytesIO(), io.BytesIO()
    np.save(file, np.arange(3.0))
    np.savez_compressed(container, a=np.arange(3.0), b=np.ones(2))

    assert facts(file.getvalue()) == ()
    assert facts(container.getvalue()) == ()


def test_a_container_without_a_pickle_says_nothing() -> None:
    assert (
        facts(
            pickles.zipped(
                {"labels.txt": b"cat\ndog\nfish\n", "ids.csv": b"id\nname\n", "empty": b"", "data/0": bytes(1_000)}
            )
        )
        == ()
    )


def test_storages_are_not_taken_for_pickles() -> None:
    """Each begins like one: a torch storage is any bytes, and a false alarm would block a good model."""
    heads = [
        b"\x80\x02c",
        b"\x80\x04\x95",
        b"X\xff\xff\x00\x00",
        b"(lp0\n",
        b"N.N.",
        b"cos\xff\xfe\nxx\n",
        b"Vabc",
        b"]" * 4_000,
    ]
    storages = {str(number): head + bytes(range(1, 256)) * 40 for number, head in enumerate(heads)}

    found = only(pickles.torch_zip(PROTO2 + b"}.", storages))

    assert (found.member, found.verdict) == ("archive/data.pkl", "plain")


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        pytest.param(EVIL, "code", id="code"),
        pytest.param(PROTO2 + b"\x82\x01.", "code", id="extension-registry"),
        pytest.param(
            pickles.joblib_wrapper(size=len(EVIL), alignment=False) + EVIL, "unreadable", id="hidden-in-an-array"
        ),
    ],
)
def test_an_entry_of_any_name_is_looked_at(content: bytes, verdict: str) -> None:
    found = facts(pickles.zipped({"a/data.pkl": PROTO2 + b"}.", "a/data/0": content}))

    assert [(one.member, one.verdict) for one in found] == [("a/data/0", verdict), ("a/data.pkl", "plain")]


# What is not on the list.


def test_the_first_thing_that_decides_is_the_reason_and_every_import_is_named() -> None:
    data = PROTO4 + named("collections", "OrderedDict") + named("os", "system") + named("shutil", "rmtree") + b"."

    found = only(data)

    assert (found.verdict, found.reason) == ("code", "it imports os.system")
    assert found.imports == ("collections.OrderedDict", "os.system", "shutil.rmtree")


ORDERED = named("collections", "OrderedDict")
DTYPE = named("numpy", "dtype") + text("f8") + b"\x89\x88\x87R"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"\x82\x01.", "it imports a name by its number in the extension registry", id="extension"),
        pytest.param(b"\x97.", "it uses the instruction NEXT_BUFFER", id="buffer"),
        pytest.param(b"Pabc\n.", "it asks its reader for an object that is no torch storage", id="persistent-text"),
        pytest.param(b"NQ.", "it asks its reader for an object that is no torch storage", id="persistent"),
        pytest.param(b"(" + text("module") + ORDERED + b"tQ.", "it asks its reader for an object that is no torch storage", id="module"),
        pytest.param(b"NK\x01\x85R.", "it calls something that is no name", id="no-name"),
        pytest.param(ORDERED + b")R)R.", "it calls something that is no name", id="result"),
        pytest.param(ORDERED + b"]R.", "it calls collections.OrderedDict with arguments that cannot be told before it runs", id="no-arguments"),
        pytest.param(ORDERED + b"}b.", "it changes collections.OrderedDict itself", id="build-name"),
        pytest.param(ORDERED + b"K\x01K\x02s.", "it changes collections.OrderedDict itself", id="fill-name"),
        pytest.param(ORDERED + ORDERED + b"\x85R.", "it gives a name to collections.OrderedDict", id="name-as-argument"),
        pytest.param(ORDERED + b")}\x92.", "it calls collections.OrderedDict with named arguments", id="named-arguments"),
        pytest.param(b"]}b.", "it changes something that is no object of a listed kind", id="build-list"),
        pytest.param(named("torch", "FloatStorage") + b"K\x01\x85R.", "it calls torch.FloatStorage, which is only ever mentioned", id="storage-call"),
        pytest.param(named("_codecs", "encode") + text("x") + text("zlib") + b"\x86R.", "it calls _codecs.encode for another encoding than Latin-1", id="codec"),
        pytest.param(named("builtins", "bytearray") + b"J\x00\x00\x00\x40\x85R.", "it calls builtins.bytearray with a size instead of bytes", id="size"),
        pytest.param(b"C\x02os" + text("system") + b"\x93.", "it imports a name that cannot be told before it runs", id="bytes-as-module"),
        pytest.param(b"X\xc8\x01\x00\x00" + b"a" * 456 + text("b") + b"\x93.", "it imports a name that cannot be told before it runs", id="long-module"),
        pytest.param(text("collections") + b"S'Ordered\\x44ict'\n\x93.", "it imports a name that cannot be told before it runs", id="escape"),
        pytest.param(b"ccollections\nOrdered\\x44ict\n.", "it imports collections.Ordered\\x44ict", id="escape-in-a-line"),
        pytest.param(b"cm\xc3\xb6dul\nx\n.", "it imports m\u00f6dul.x", id="name-that-is-not-ASCII"),
        pytest.param(text("collections") + b"VOrdered\xe9\n\x93.", "it imports a name that cannot be told before it runs", id="text-that-is-not-ASCII"),
        pytest.param(b"ccollections OrderedDict\nx\n.", "it imports collections OrderedDict.x", id="blank-in-a-name"),
        pytest.param(named("numpy", "dtype") + text("O,f8") + b"\x85R.", "it calls numpy.dtype for something that is no plain number type", id="dtype"),
        pytest.param(DTYPE + b"(K\x03" + text("<") + b"NNNK\x01K\x01K\x3ftb.", "it makes a dtype with flags that its kind does not have", id="dtype-flags"),
        pytest.param(DTYPE + b"(K\x03" + text("<") + b"N]NK\x01K\x01K\x00tb.", "it makes a dtype of several fields, or one that cannot be told before it runs", id="dtype-fields"),
        pytest.param(named("torch._tensor", "_rebuild_from_type_v2") + b".", "it imports torch._tensor._rebuild_from_type_v2", id="calls-its-argument"),
    ],
)  # fmt: skip
def test_what_is_on_no_list_is_code(body: bytes, reason: str) -> None:
    found = only(PROTO4 + body)

    assert (found.verdict, found.reason) == ("code", reason)


@pytest.mark.parametrize("pair", sorted(pickle_names.ALLOWED), ids=".".join)
def test_no_listed_name_becomes_another_one_for_an_older_protocol(pair: tuple[str, str]) -> None:
    """Below protocol 3 an unpickler translates names of Python 2; the list must hold what comes out, too."""
    import _compat_pickle  # noqa: PLC0415 -- the table itself, which only this test looks at

    translated = _compat_pickle.NAME_MAPPING.get(pair) or (_compat_pickle.IMPORT_MAPPING.get(pair[0], pair[0]), pair[1])

    assert translated in pickle_names.ALLOWED


@pytest.mark.parametrize("name", ["eval", "exec", "getattr", "__import__", "open", "map", "type", "object"])
def test_no_builtin_that_does_something_is_listed(name: str) -> None:
    assert not {("builtins", name), ("__builtin__", name)} & set(pickle_names.ALLOWED)


# Hostile files.


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The hostile files that did their harm when their victim loaded them."""
    return pickles.really_loaded(pickles.hostile(), tmp_path_factory.mktemp("victims"))


@pytest.mark.req("A4")
@pytest.mark.parametrize("case", pickles.hostile(), ids=lambda case: case.name.replace(" ", "-"))
def test_a_pickle_that_really_does_harm_never_passes(
    case: pickles.Hostile, loaded: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = facts(case.data)

    assert case.name in loaded
    assert found[0].verdict == ("unreadable" if case.name == "joblib array that is instructions" else "code")
    assert not (tmp_path / pickles.MARKER).exists()


def test_what_runs_before_an_error_is_code_and_not_only_unreadable() -> None:
    assert only(b"N0\xff").verdict == "unreadable"
    assert only(EVIL[:-1] + b"\xff").verdict == "code"


# Containers that two readers would read differently.


def damaged(
    change: Callable[[bytearray], None], content: bytes = PROTO2 + b"}.", method: int = zipfile.ZIP_STORED
) -> tuple[PickleFacts, ...]:
    data = bytearray(pickles.zipped({"a/data.pkl": content, "a/version": b"3"}, method=method))
    change(data)
    return facts(bytes(data))


def put(data: bytearray, magic: bytes, offset: int, value: bytes, *, last: bool = False) -> None:
    at = (data.rindex(magic) if last else data.index(magic)) + offset
    data[at : at + len(value)] = value


LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda data: put(data, LOCAL, 30, b"b"), "an entry and the directory disagree about its name or kind", id="name"),
        pytest.param(lambda data: put(data, LOCAL, 8, b"\x08"), "an entry and the directory disagree about its name or kind", id="method"),
        pytest.param(lambda data: put(data, LOCAL, 22, b"\x01"), "an entry and the directory disagree about its size or checksum", id="size"),
        pytest.param(lambda data: put(data, LOCAL, 0, b"XX", last=True), "an entry does not begin where the directory says", id="no-entry"),
        pytest.param(lambda data: put(data, CENTRAL, 46, b"\0"), "the name of an entry holds a zero byte", id="zero-byte"),
        pytest.param(lambda data: put(data, CENTRAL, 42, b"\xff\xff"), "an entry begins behind the end of the file", id="place"),
        pytest.param(lambda data: put(data, END, 8, b"\x09\0\x09\0"), "its directory has another number of entries than it says", id="number"),
        pytest.param(lambda data: data.extend(b"more"), "its directory does not end where the file ends", id="behind"),
        pytest.param(lambda data: put(data, END, 16, b"\0\0"), "its directory is not where its end says", id="directory"),
    ],
)  # fmt: skip
def test_a_container_that_two_readers_read_differently_is_unreadable(
    change: Callable[[bytearray], None], reason: str
) -> None:
    container = next(found for found in damaged(change) if not found.member)

    assert (container.verdict, container.reason) == ("unreadable", reason)


def test_an_encrypted_entry_is_unreadable() -> None:
    def encrypt(data: bytearray) -> None:
        put(data, LOCAL, 6, b"\x01")
        put(data, CENTRAL, 8, b"\x01")

    (found,) = damaged(encrypt)

    assert (found.member, found.verdict, found.reason) == ("a/data.pkl", "unreadable", "it is encrypted")


def test_an_entry_packed_in_an_unusual_way_is_unreadable() -> None:
    (found,) = facts(pickles.zipped({"a/data.pkl": PROTO2 + b"}."}, method=zipfile.ZIP_BZIP2))

    assert (found.verdict, found.reason) == ("unreadable", "it is packed by method 12, which no writer of models uses")


def test_a_wrong_checksum_is_unreadable_although_torch_would_not_mind() -> None:
    content = PROTO2 + b"}."
    (found,) = facts(pickles.wrong_checksum(pickles.torch_zip(content), content))

    assert (found.verdict, found.reason) == ("unreadable", "its checksum is not the one of its container")


def test_two_entries_of_one_name_are_unreadable_and_code_in_either_is_code() -> None:
    """Torch's reader takes no notice of capitals, so the second of these two is the first for one of the readers."""
    twice = pickles.zipped({"a/data.pkl": PROTO2 + b"}.", "a/DATA.pkl": EVIL})

    assert [(found.member, found.verdict) for found in facts(twice)] == [
        ("a/DATA.pkl", "code"),
        ("", "unreadable"),
        ("a/data.pkl", "plain"),
    ]


def test_overlapping_entries_are_unreadable() -> None:
    """The first entry says that the second is a part of it; both records of it say so."""

    def overlap(data: bytearray) -> None:
        for magic, at in ((LOCAL, 18), (CENTRAL, 20)):
            put(data, magic, at, b"\x20\0\0\0\x20\0\0\0")

    assert ("", "its entries overlap") in {(found.member, found.reason) for found in damaged(overlap)}


def test_a_pickle_before_a_container_is_read_to_its_end() -> None:
    """A reader that looks for the directory finds a harmless container behind it."""
    data = EVIL + pickles.torch_zip(PROTO2 + b"}.")

    assert facts(data)[0].verdict == "code"
