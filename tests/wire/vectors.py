"""Worked messages of the protocol, built from native/wire.py alone, with a CRC of their own.

`python -m tests.wire.vectors` writes docs/vectors.json, which has all of them, and the hex of those that
docs/protocol.md shows. The Rust, Cython and Python codecs are tested against the JSON. A test fails when JSON
or document are stale.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ringfence.native import wire
from tests.wire.catalogue import all_vectors

ROOT = Path(__file__).resolve().parent.parent.parent
JSON = ROOT / "docs" / "vectors.json"
DOCUMENT = ROOT / "docs" / "protocol.md"
NODES_DOCUMENT = ROOT / "docs" / "protocol_nodes.md"


def build() -> dict[str, dict[str, Any]]:
    """Every vector by name: kind, opcode, fields, header and body as hex."""
    out = {}
    for name, vector in all_vectors():
        kind, layout = (
            (wire.RequestHeader, wire.REQUEST_STRUCT)
            if vector["kind"] == "request"
            else (wire.AnswerHeader, wire.ANSWER_STRUCT)
        )
        fields = kind._make(layout.unpack(vector["header"]))._asdict()
        out[name] = {
            "kind": vector["kind"],
            "opcode": vector["opcode"],
            "fields": {k: v for k, v in fields.items() if v},
            "header": vector["header"].hex(),
            "body": vector["body"].hex(),
        }
    return out


def hex_block(vector: dict[str, Any]) -> str:
    """Hex as the document shows it: 32 bytes a line, header and body apart."""
    parts = []
    for part in ("header", "body"):
        lines = [vector[part][at : at + 64] for at in range(0, len(vector[part]), 64)]
        if lines:
            parts.append(f"{part}:\n" + "\n".join(lines))
    return "\n".join(parts)


def filled(document: str, vectors: dict[str, dict[str, Any]]) -> str:
    """The document with the block behind each `<!-- vector: NAME -->` line made anew."""

    def block(found: re.Match[str]) -> str:
        return f"<!-- vector: {found[1]} -->\n```text\n{hex_block(vectors[found[1]])}\n```\n"

    return re.sub(r"<!-- vector: (\w+) -->\n(?:```text\n.*?\n```\n)?", block, document, flags=re.DOTALL)


def main() -> None:
    vectors = build()
    JSON.write_text(json.dumps(vectors, indent=1) + "\n")
    if DOCUMENT.exists():
        DOCUMENT.write_text(filled(DOCUMENT.read_text(), vectors))


if __name__ == "__main__":
    main()
