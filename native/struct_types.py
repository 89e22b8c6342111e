"""Let msgspec read the fields of types while one thread imports them.

msgspec reads the fields of a struct when it first decodes one, and keeps what it found in the class. It puts
the result there before all fields are read, since a type may contain itself. To read a nested struct it runs
Python code, so another thread may run then. If that thread decodes the same struct, msgspec uses a field that
is not read yet, and the process ends with SIGSEGV (seen with msgspec 0.22).

Only one thread at a time imports a module, and the others wait for it. So a module prepares, at its end, the
types that are decoded by `decode(..., type=)` or `convert`. A `Decoder` of the module prepares its own type.
"""

from __future__ import annotations

import msgspec


def prepare_types(*types: object) -> None:
    """Read the fields of these types, and of all types within them; call it at the end of a module.

    Raises:
        NameError: an annotation names a type that is not defined yet.
        TypeError: msgspec cannot tell apart the types of a union.
    """
    for kind in types:
        msgspec.msgpack.Decoder(kind)
