"""Generate the constants of Rust, Python and Cython from core/wire/wire.toml.

`python native/gen_wire.py` rewrites the three generated files. `--check` changes nothing and exits 1 if one
of them is stale; the tests call it.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "core" / "wire" / "wire.toml"
RUST = ROOT / "core" / "wire" / "src" / "generated.rs"
PYTHON = ROOT / "native" / "wire.py"
CYTHON = ROOT / "native" / "wire.pxd"

SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}
STRUCT_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
CYTHON_TYPES = {"u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t"}
HEADERS = ("request", "answer", "record")
ENUMS = {
    "rights": ("Right", "u8"),
    "opcodes": ("Opcode", "u8"),
    "statuses": ("Status", "u8"),
    "codes": ("Code", "u16"),
    "redirect_reasons": ("RedirectReason", "u16"),
    "record_kinds": ("RecordKind", "u8"),
    "extensions": ("ExtensionKind", "u16"),
}
# Section: (Python name, prefix of the constants, Rust type).
FLAGS = {
    "request_flags": ("RequestFlags", "REQUEST_FLAG", "u16"),
    "answer_flags": ("AnswerFlags", "ANSWER_FLAG", "u16"),
    "features": ("Features", "FEATURE", "u64"),
}
C_INT_MAX = 2**31 - 1
WARNING = "Generated from core/wire/wire.toml by native/gen_wire.py; edit those."


def field_size(field: dict[str, Any]) -> int:
    return int(field["size"]) if field["type"] == "bytes" else SIZES[field["type"]]


def offsets(header: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """Each field with its position. Exits with an error unless the fields fill the header exactly."""
    placed, position = [], 0
    for field in header["fields"]:
        size = field_size(field)
        if field["type"] != "bytes" and position % size:
            raise SystemExit(f"{field['name']} at {position} is not aligned to {size}")
        placed.append((field, position))
        position += size
    if position != header["size"]:
        raise SystemExit(f"fields fill {position} of {header['size']} bytes")
    return placed


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def values(header: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
    return [(field, at) for field, at in offsets(header) if field["type"] != "bytes"]


# ---- Rust -----------------------------------------------------------------------------------------


def rust_doc(text: str, indent: str = "") -> str:
    return f"{indent}/// {text[0].upper()}{text[1:]}.\n" if text else ""


def rust_enum(name: str, base: str, members: dict[str, Any]) -> str:
    lines = [
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]",
        f"#[repr({base})]",
        f"pub enum {name} {{",
    ]
    for key, member in members.items():
        lines.append(rust_doc(member.get("doc", "") or key, "    ").rstrip("\n"))
        lines.append(f"    {camel(key)} = {member['value']},")
    lines += ["}", "", f"impl {name} {{"]
    lines.append("    /// Every member, in the order of their numbers' definition.")
    lines.append(f"    pub const ALL: &'static [{name}] = &[")
    lines += [f"        {name}::{camel(key)}," for key in members]
    lines += ["    ];", ""]
    lines.append("    /// The member with this number, if there is one.")
    lines += [
        "    #[must_use]",
        f"    pub const fn from_number(number: {base}) -> Option<Self> {{",
        "        match number {",
    ]
    lines += [
        f"            {member['value']} => Some(Self::{camel(key)})," for key, member in members.items()
    ]
    lines += ["            _ => None,", "        }", "    }", ""]
    lines.append("    /// The name used in documents, logs and errors.")
    lines += ["    #[must_use]", "    pub const fn name(self) -> &'static str {", "        match self {"]
    lines += [f'            Self::{camel(key)} => "{key}",' for key in members]
    lines += ["        }", "    }"]
    for attribute in ("retriable", "log"):
        if any(attribute in member for member in members.values()):
            method = {"retriable": "is_retriable", "log": "is_log"}[attribute]
            yes = [f"Self::{camel(key)}" for key, member in members.items() if member.get(attribute)]
            lines += [
                "",
                f"    /// True for: {', '.join(key for key, m in members.items() if m.get(attribute))}.",
            ]
            lines += ["    #[must_use]", f"    pub const fn {method}(self) -> bool {{"]
            lines += [f"        matches!(self, {' | '.join(yes)})", "    }"]
    if any("right" in member for member in members.values()):
        lines += rust_rights(members)
    lines += ["}", ""]
    return "\n".join(lines)


def rust_rights(members: dict[str, Any]) -> list[str]:
    lines = ["", "    /// What a connection must be allowed to send it, where tokens are asked for."]
    lines += ["    #[must_use]", "    pub const fn right(self) -> Option<Right> {", "        match self {"]
    for right in sorted({member["right"] for member in members.values() if "right" in member}):
        those = [f"Self::{camel(key)}" for key, member in members.items() if member.get("right") == right]
        lines.append(f"            {' | '.join(those)} => Some(Right::{camel(right)}),")
    return [*lines, "            _ => None,", "        }", "    }"]


def rust_header(name: str, header: dict[str, Any]) -> str:
    struct = f"{camel(name)}Header"
    lines = [
        f"/// {header['size']} bytes on the wire; see wire.toml for the positions.",
        "#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]",
        f"pub struct {struct} {{",
    ]
    for field, _ in values(header):
        lines.append(rust_doc(field["doc"] or field["name"], "    ").rstrip("\n"))
        lines.append(f"    pub {field['name']}: {field['type']},")
    lines += ["}", "", f"impl {struct} {{", f"    pub const SIZE: usize = {header['size']};", ""]
    for field, at in offsets(header):
        lines.append(f"    pub const {field['name'].upper()}_AT: usize = {at};")
    lines += [
        "",
        "    /// Read every field; checks nothing.",
        "    #[must_use]",
        f"    pub fn read(bytes: &[u8; {header['size']}]) -> Self {{",
        "        Self {",
    ]
    for field, at in values(header):
        size = field_size(field)
        parts = ", ".join(f"bytes[{at + i}]" for i in range(size))
        lines.append(f"            {field['name']}: {field['type']}::from_le_bytes([{parts}]),")
    lines += [
        "        }",
        "    }",
        "",
        "    /// Write every field, reserved bytes as zero.",
        f"    pub fn write(&self, bytes: &mut [u8; {header['size']}]) {{",
    ]
    for field, at in offsets(header):
        end = at + field_size(field)
        source = (
            "fill(0)" if field["type"] == "bytes" else f"copy_from_slice(&self.{field['name']}.to_le_bytes())"
        )
        lines.append(f"        bytes[{at}..{end}].{source};")
    lines += ["    }", "}", ""]
    return "\n".join(lines)


def render_rust(spec: dict[str, Any]) -> str:
    out = [f"// {WARNING}", "#![allow(clippy::too_many_lines)]", ""]
    for key, item in spec["constants"].items():
        kind = item["type"]
        text = f"0x{item['value']:08X}" if "magic" in key else str(item["value"])
        out.append(rust_doc(item["doc"]) + f"pub const {key.upper()}: {kind} = {text};")
    out.append("")
    for key, item in spec["limits"].items():
        out.append(
            rust_doc(f"{item['unit']}: {item['reason']}")
            + f"pub const {key.upper()}: usize = {item['value']};"
        )
    out.append("")
    for key, (_, prefix, kind) in FLAGS.items():
        for flag, item in spec[key].items():
            out.append(
                rust_doc(item["doc"]) + f"pub const {prefix}_{flag.upper()}: {kind} = {item['value']};"
            )
    out.append("")
    out += [rust_enum(name, base, spec[key]) for key, (name, base) in ENUMS.items()]
    out += [rust_header(name, spec[name]) for name in HEADERS]
    return "\n".join(out)


# ---- Python ---------------------------------------------------------------------------------------


def python_enum(name: str, members: dict[str, Any], base: str = "IntEnum") -> str:
    lines = [f"class {name}({base}):"]
    for key, member in members.items():
        lines.append(
            f"    {key.upper()} = {member['value']}" + (f"  # {member['doc']}" if member.get("doc") else "")
        )
    return "\n".join(lines) + "\n"


def render_python(spec: dict[str, Any]) -> str:
    out = [
        f'"""{WARNING}"""',
        "",
        "# ruff: noqa: E501",
        "from __future__ import annotations",
        "",
        "import struct",
        "from enum import IntEnum, IntFlag",
        "from typing import Final, NamedTuple",
        "",
    ]
    for key, item in spec["constants"].items():
        out.append(f"{key.upper()}: Final = {item['value']}  # {item['doc']}")
    for key, item in spec["limits"].items():
        out.append(f"{key.upper()}: Final = {item['value']}  # {item['unit']}: {item['reason']}")
    out.append("")
    out += ["", *("\n" + python_enum(name, spec[key]) for key, (name, _) in ENUMS.items())]
    out += ["\n" + python_enum(name, spec[key], "IntFlag") for key, (name, *_) in FLAGS.items()]
    retriable = ", ".join(f"Code.{key.upper()}" for key, item in spec["codes"].items() if item["retriable"])
    out.append(f"\nRETRIABLE: Final = frozenset({{{retriable}}})")
    logs = ", ".join(f"RecordKind.{key.upper()}" for key, item in spec["record_kinds"].items() if item["log"])
    rights = [
        f"Opcode.{key.upper()}: Right.{item['right'].upper()}"
        for key, item in spec["opcodes"].items()
        if "right" in item
    ]
    out.append(f"RIGHTS: Final = {{{', '.join(rights)}}}")
    out.append(f"LOG_KINDS: Final = frozenset({{{logs}}})\n")
    for name in HEADERS:
        out.append(python_header(name, spec[name]))
    return "\n".join(out).rstrip("\n") + "\n"


def python_header(name: str, header: dict[str, Any]) -> str:
    code = "<"
    for field, _ in offsets(header):
        code += f"{field['size']}x" if field["type"] == "bytes" else STRUCT_CODES[field["type"]]
    lines = [f"\n{name.upper()}_STRUCT: Final = struct.Struct({code!r})".replace("'", '"')]
    for field, at in offsets(header):
        lines.append(f"{name.upper()}_{field['name'].upper()}_AT: Final = {at}")
    lines += [
        "",
        "",
        f"class {camel(name)}Header(NamedTuple):",
        f'    """{header["size"]} bytes; `{name.upper()}_STRUCT` packs them in this order."""',
        "",
    ]
    for field, _ in values(header):
        lines.append(f"    {field['name']}: int = 0" + (f"  # {field['doc']}" if field["doc"] else ""))
    return "\n".join(lines) + "\n"


def render_cython(spec: dict[str, Any]) -> str:
    out = [f"# {WARNING}", "from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t", "", "cdef enum:"]
    for key, item in {**spec["constants"], **spec["limits"]}.items():
        if item["value"] > C_INT_MAX:
            continue  # one larger value would widen every constant of the enum
        out.append(f"    {key.upper()} = {item['value']}")
    for key, (name, _) in ENUMS.items():
        prefix = {
            "Opcode": "OP",
            "RedirectReason": "REASON",
            "RecordKind": "KIND",
            "ExtensionKind": "EXTENSION",
        }.get(name, name.upper())
        out += [f"    {prefix}_{member.upper()} = {item['value']}" for member, item in spec[key].items()]
    for key, (_, prefix, _) in FLAGS.items():
        out += [f"    {prefix}_{member.upper()} = {item['value']}" for member, item in spec[key].items()]
    for name in HEADERS:
        out += ["", f"cdef packed struct {camel(name)}Header:"]
        for field, _ in offsets(spec[name]):
            kind = (
                f"uint8_t {field['name']}[{field['size']}]"
                if field["type"] == "bytes"
                else f"{CYTHON_TYPES[field['type']]} {field['name']}"
            )
            out.append(f"    {kind}")
    return "\n".join(out) + "\n"


def main(arguments: list[str]) -> int:
    spec = tomllib.loads(SOURCE.read_text())
    for key in ENUMS:
        numbers = [item["value"] for item in spec[key].values()]
        if len(numbers) != len(set(numbers)):
            raise SystemExit(f"[{key}] uses a number twice")
    wanted = {RUST: render_rust(spec), PYTHON: render_python(spec), CYTHON: render_cython(spec)}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run python native/gen_wire.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
