"""Formats and names that no library would export, written by hand: refused, and nothing is followed."""

from __future__ import annotations

import ctypes

import pyarrow as pa
import pytest

import ringfence
from ringfence.native._node import schema_message
from ringfence.native.errors import SchemaError
from ringfence.native.slots import hash64


class Schema(ctypes.Structure):
    """`ArrowSchema` of the C data interface."""


Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

POINTER = ctypes.pythonapi.PyCapsule_GetPointer
POINTER.restype, POINTER.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Altered:
    """A batch whose first column has another format or name."""

    def __init__(self, column: pa.Array, *, kind: bytes | None = None, name: bytes | None = None) -> None:
        batch = pa.record_batch({"k": column, "other": column})
        self._capsules: tuple[object, object] = batch.__arrow_c_array__()
        schema = Schema.from_address(POINTER(self._capsules[0], b"arrow_schema"))
        field = schema.children[0].contents
        self._kept = kind, name  # the schema points there
        if kind is not None:
            field.format = kind
        if name is not None:
            field.name = name

    def __arrow_c_schema__(self) -> object:
        return self._capsules[0]

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._capsules


FIXED = pa.array([b"12345678"] * 4, pa.binary(8))
DECIMAL = pa.array([1, 2, 3, 4], pa.decimal128(5, 2))
LISTS = pa.array([[1, 2]] * 4, pa.list_(pa.int32(), 2))
LONG = pa.array([1, 2, 3, 4])
WRONG: list[tuple[pa.Array, list[bytes]]] = [
    (FIXED, [b"w:-5", b"w:2147483648", b"w:", b"w:x", b"w:4,4", b"w:\xc2\xb2", b"w:\xff"]),
    (DECIMAL, [b"d:5", b"d:5,2,16", b"d:5,2,-64", b"d:5,2,0", b"d:-5,2", b"d:x,2", b"d:5,2,64,1"]),
    (LISTS, [b"+w:-3", b"+w:", b"+w:99999999999999999999"]),
    (LONG, [b"ts", b"tsx:", b"", b"\xff"]),
]


@pytest.mark.parametrize(
    ("column", "given"), [(column, each) for column, formats in WRONG for each in formats]
)
def test_a_format_that_no_type_has_is_refused_with_its_column(column: pa.Array, given: bytes) -> None:
    for hashed in (hash64, ringfence.slots):
        with pytest.raises(SchemaError) as caught:
            hashed(Altered(column, kind=given), ["k"])
        assert caught.value.column == "k"
        assert not given.isascii() or given.decode() in str(caught.value)


@pytest.mark.parametrize("given", [b"f", b"u", b"+s", b"nonsense"])
def test_a_dictionary_whose_indexes_are_no_integers_is_refused(given: bytes) -> None:
    batch = Altered(pa.array(["a", "b"]).dictionary_encode(), kind=given)
    with pytest.raises(SchemaError, match="'k' is invalid: the indexes of its dictionary") as caught:
        hash64(batch, ["k"])
    assert caught.value.column == "k"


def test_formats_of_every_width_give_what_the_types_give() -> None:
    for column, given in ((FIXED, b"w:8"), (DECIMAL, b"d:5,2"), (DECIMAL, b"d:5,-2,128"), (LISTS, b"+w:2")):
        plain = hash64(pa.record_batch({"k": column}), ["k"]).tolist()
        assert hash64(Altered(column, kind=given), ["k"]).tolist() == plain


def test_a_name_that_is_no_text_is_refused_not_read() -> None:
    with pytest.raises(SchemaError, match="is not UTF-8") as caught:
        schema_message(Altered(LONG, name=b"\xff\xfe"))
    assert caught.value.column == "\ufffd\ufffd"
    plain = hash64(pa.record_batch({"k": LONG}), ["k"]).tolist()
    assert hash64(Altered(LONG, name=b"\xff\xfe"), ["other"]).tolist() == plain
    with pytest.raises(SchemaError, match="no column 'k'"):
        hash64(Altered(LONG, name=b"\xff\xfe"), ["k"])
