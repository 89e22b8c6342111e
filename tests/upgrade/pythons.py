"""Applies the recorded metadata log on every supported Python of this machine; each gives the recorded hash.

`make test-pythons`. A Python that has no `venv` with msgspec yet gets one in a folder of the test.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import ringfence
from tests.upgrade.apply_log import recorded

ROOT: Final = Path(__file__).resolve().parents[2]
NAMES: Final = ("python3.11", "python3.12", "python3.13", "python3.14")
HOMES: Final = (Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python")


def found() -> dict[str, str]:
    """Programs of supported Pythons, by version: on the path, of pyenv, of uv."""
    programs = [shutil.which(name) or "" for name in NAMES]
    programs += [str(path) for home in HOMES for name in NAMES for path in sorted(home.glob(f"*/bin/{name}"))]
    known: dict[str, str] = {}
    for program in filter(None, programs):
        told = subprocess.run(
            [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode == 0 and f"python{told.stdout.strip()}" in NAMES:
            known.setdefault(told.stdout.strip(), program)
    return known


def requirement(name: str) -> str:
    """`name==version`, as it is locked."""
    lock = (ROOT / "requirements-dev.txt").read_text()
    (version,) = re.findall(rf"^{name}==([^ ]+)", lock, re.MULTILINE)
    return f"{name}=={version}"


def applied_by(program: str, folder: Path) -> str:
    """The hash that this Python gives."""
    python = folder / "bin" / "python"
    if shutil.which("uv"):
        subprocess.run(["uv", "venv", "-q", "--python", program, folder], check=True)
        install = ["uv", "pip", "install", "-q", "--python", str(python)]
    else:
        subprocess.run([program, "-m", "venv", folder], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    needed = [requirement(name) for name in ("msgspec", "structlog")]
    subprocess.run([*install, *needed], check=True)
    # The build is for the stable ABI: every Python from 3.11 on loads it.
    package = Path(ringfence.__path__[0]).parent
    ended = subprocess.run(
        [python, "-m", "tests.upgrade.apply_log"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{package}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    return ended.stdout.strip()


def main() -> int:
    _, told = recorded()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ringfence-pythons-") as folder:
        for version, program in sorted(found().items()):
            given = applied_by(program, Path(folder) / version)
            failed += given != told
            print(f"Python {version}: {given}, recorded is {told}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
