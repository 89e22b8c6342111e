"""Builds the native benchmark programs with cargo, and the C probe with cc, and finds them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.paths import ROOT, work_directory

BUILD_TIMEOUT_S = 1800  # a cold release build of the workspace takes 75 s on two idle cores


def _cargo(*arguments: str) -> dict[str, str]:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise FileNotFoundError(
            "cargo is not installed: benchmarks need Rust 1.88 or newer (https://rustup.rs)"
        )
    command = [
        cargo,
        "build",
        "--locked",
        "--quiet",  # warnings of libzmq's own sources
        "--message-format=json-render-diagnostics",
        *arguments,
    ]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=BUILD_TIMEOUT_S)
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith(b"{"))
    found = {
        message["target"]["name"]: message["executable"] for message in messages if message.get("executable")
    }
    if not found:
        raise FileNotFoundError(f"cargo built no program for {arguments}")
    return found


def build(profile: str, *names: str) -> dict[str, str]:
    """Paths of programs of benchmarks/native by name: these, or all of them."""
    wanted = [argument for name in names for argument in ("--bin", name)] or ["--bins"]
    # Beside the extension, so that libraries have the features that they have there: alone libc has fewer,
    # and Arrow and all above it are compiled a second time.
    packages = ("--package", "ringfence-bench", "--package", "ringfence-native")
    return _cargo("--profile", profile, *packages, *wanted)


@functools.cache
def programs() -> dict[str, str]:
    """All of them, built now for release, unless `BENCHMARKS_PROGRAMS` names a directory that has them."""
    if built := os.environ.get("BENCHMARKS_PROGRAMS"):
        return {path.name: str(path) for path in Path(built).iterdir() if os.access(path, os.X_OK)}
    return build("release")


@functools.cache
def c_probe() -> Path | None:
    """The C probe, or None where there is no C compiler or no x86-64."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    program = work_directory() / "c_probe"
    source = ROOT / "benchmarks" / "native" / "c_probe.c"
    command = [compiler, "-O3", "-march=native", "-pthread", "-o", str(program), str(source)]
    built = subprocess.run(command, check=False, capture_output=True, timeout=120)
    return program if built.returncode == 0 else None
