"""The native extension with faults in it: built on demand, loaded beside the product's own, never installed.

It shares the libraries that the product's own build left in cargo's target directory, so the first build
compiles our crates only, later ones what changed. What cargo leaves under the name of both is copied: the
product's next build puts its own there again.
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


def target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def build() -> Path:
    """The shared object, built anew if a source changed. Raises CalledProcessError with what cargo said."""
    command = ["cargo", "build", "--locked", "--quiet", "--release", "--features", "planted"]
    command += ["--package", "ringfence-native", "--target-dir", os.fspath(target())]
    subprocess.run(command, cwd=ROOT, check=True)
    folder = target() / "planted"
    folder.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:  # others may load it right now
        file.write((target() / "release" / "lib_node.so").read_bytes())
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
