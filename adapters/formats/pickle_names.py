"""The names that a pickle of weights may import, each with what may be done with it. Everything else is code.

A name is here only if it is harmless whatever plain values it is called with: it imports nothing, opens nothing, and
calls none of its arguments. `torch.storage._load_from_bytes` is not (it loads a pickle from bytes), nor is `getattr`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What may be done with a name.

    Attributes:
        tensors: does it rebuild or describe tensors? Otherwise it makes a plain value.
        call: may it be called? A dtype or a storage class is only ever mentioned.
        takes_names: may another allowed name be among its arguments?
    """

    tensors: bool
    call: bool
    takes_names: bool = False


_REBUILD: Final = Allowed(tensors=True, call=True, takes_names=True)
_TENSORS: Final = Allowed(tensors=True, call=True)
_DESCRIBES: Final = Allowed(tensors=True, call=False)
_PLAIN: Final = Allowed(tensors=False, call=True)
_MENTIONED: Final = Allowed(tensors=False, call=False)

STORAGE_SUFFIX: Final = "Storage"
DTYPE: Final = ("numpy", "dtype")
ENCODE: Final = ("_codecs", "encode")
JOBLIB_ARRAY: Final = ("joblib.numpy_pickle", "NumpyArrayWrapper")
NDARRAY: Final = ("numpy", "ndarray")
# Older pickles name the first two of these; `__builtin__` is what Python 2 and protocols below 3 call `builtins`.
_BUILTINS: Final = ("builtins", "__builtin__")
_STORAGES: Final = (
    "BFloat16",
    "Bool",
    "Byte",
    "Char",
    "ComplexDouble",
    "ComplexFloat",
    "Double",
    "Float",
    "Half",
    "Int",
    "Long",
    "QInt32",
    "QInt8",
    "QUInt2x4",
    "QUInt4x2",
    "QUInt8",
    "Short",
)
_DTYPES: Final = (
    "bfloat16",
    "bits16",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "bits8",
    "bool",
    "complex128",
    "complex32",
    "complex64",
    "float16",
    "float32",
    "float4_e2m1fn_x2",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "int1",
    "int16",
    "int2",
    "int3",
    "int32",
    "int4",
    "int5",
    "int6",
    "int64",
    "int7",
    "int8",
    "per_channel_affine",
    "per_channel_affine_float_qparams",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "qint32",
    "qint8",
    "quint2x4",
    "quint4x2",
    "quint8",
    "uint1",
    "uint16",
    "uint2",
    "uint3",
    "uint32",
    "uint4",
    "uint5",
    "uint6",
    "uint64",
    "uint7",
    "uint8",
)
_REBUILDERS: Final = (
    "_rebuild_device_tensor_from_cpu_tensor",
    "_rebuild_device_tensor_from_numpy",
    "_rebuild_meta_tensor_no_storage",
    "_rebuild_nested_tensor",
    "_rebuild_parameter",
    "_rebuild_parameter_with_state",
    "_rebuild_qtensor",
    "_rebuild_sparse_tensor",
    "_rebuild_tensor",
    "_rebuild_tensor_v2",
    "_rebuild_tensor_v3",
)


def _torch() -> dict[tuple[str, str], Allowed]:
    named = {("torch._utils", name): _REBUILD for name in _REBUILDERS}
    for name in _STORAGES:
        named["torch", name + STORAGE_SUFFIX] = _DESCRIBES
        named["torch.cuda", name + STORAGE_SUFFIX] = _DESCRIBES
    for name in _DTYPES:
        named["torch", name] = _DESCRIBES
    named["torch.storage", "TypedStorage"] = _DESCRIBES
    named["torch.storage", "UntypedStorage"] = _DESCRIBES
    named["torch", "Size"] = _TENSORS
    named["torch", "device"] = _TENSORS
    named["torch.serialization", "_get_layout"] = _TENSORS
    return named


def _numpy() -> dict[tuple[str, str], Allowed]:
    named = {DTYPE: _TENSORS, NDARRAY: _DESCRIBES, JOBLIB_ARRAY: _TENSORS}
    for core in ("numpy.core", "numpy._core"):
        named[f"{core}.multiarray", "_reconstruct"] = _REBUILD
        named[f"{core}.multiarray", "scalar"] = _TENSORS
        named[f"{core}.numeric", "_frombuffer"] = _TENSORS
    return named


def _plain() -> dict[tuple[str, str], Allowed]:
    named = {("collections", name): _PLAIN for name in ("Counter", "OrderedDict", "deque")}
    named["collections", "defaultdict"] = Allowed(tensors=False, call=True, takes_names=True)
    named.update({("datetime", name): _PLAIN for name in ("date", "datetime", "time", "timedelta", "timezone")})
    named[ENCODE] = _PLAIN
    for module in _BUILTINS:
        named.update(
            {(module, name): _PLAIN for name in ("bytearray", "bytes", "complex", "frozenset", "set", "slice")}
        )
        # What a `defaultdict` fills itself with.
        named.update({(module, name): _MENTIONED for name in ("bool", "dict", "float", "int", "list", "str", "tuple")})
    return named


ALLOWED: Final[dict[tuple[str, str], Allowed]] = {**_torch(), **_numpy(), **_plain()}
# Each word once: strings of a pickle that are one of these cost no memory of their own.
WORDS: Final[dict[str, str]] = {word: word for pair in ALLOWED for word in pair}
