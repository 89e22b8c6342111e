"""The native extension with faults in it: built on demand, loaded beside the product's own, never installed.

Built in the profile of `cargo test`, whose libraries it shares: it compiles the three crates that know of
faults, and does not optimize them as a whole, which takes a release minutes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
NAME: Final = "ringfence_planted._node"  # the last part is the name that its init function has
MARK: Final = b"plantable_cohorts"
"""A function that only this one has. Every build of the extension in this profile (the wheel's, from copied
sources) leaves it under one name, and cargo takes the newest for its own."""
TRIES_MAX: Final = 3  # each time another build would have to end between ours and our look at it


def target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def build() -> Path:
    """The shared object, built anew if a source changed. Raises CalledProcessError with what cargo said."""
    command = ["cargo", "build", "--locked", "--quiet", "--features", "planted"]
    command += ["--package", "ringfence-native", "--target-dir", os.fspath(target())]
    for _ in range(TRIES_MAX):
        subprocess.run(command, cwd=ROOT, check=True)
        content = (target() / "debug" / "lib_node.so").read_bytes()
        if MARK in content:
            return _kept(content)
        (target() / "debug" / "deps" / "lib_node.so").unlink(missing_ok=True)  # or cargo would not build ours
    raise RuntimeError(f"other builds replaced {target()}/debug/lib_node.so {TRIES_MAX} times; try again")


def _kept(content: bytes) -> Path:
    """A copy that no build writes over."""
    folder = target() / "planted"
    folder.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:  # others may load it right now
        file.write(content)
    return Path(file.name).replace(folder / "lib_node.so")


@cache
def load() -> ModuleType:
    """The module; nothing is switched on in it."""
    path = build()
    loader = ExtensionFileLoader(NAME, os.fspath(path))
    spec = spec_from_loader(NAME, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@contextmanager
def planted(name: str) -> Iterator[ModuleType]:
    """The module with one fault on; off again behind the block."""
    module = load()
    module.plant(name)
    try:
        yield module
    finally:
        module.plant(None)
