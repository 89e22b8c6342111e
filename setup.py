"""Builds one wheel: the Python packages, the Cython modules, and the PyO3 extension, which maturin makes.

Folders are mapped to packages (see pyproject.toml): client -> ringfence, native -> ringfence.native,
control -> ringfence.control. Everything native is built for the stable ABI of Python 3.11.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
FOLDERS = {
    "ringfence": "client",
    "ringfence.native": "native",
    "ringfence.control": "control",
    "pyspark_ringfence": "pyspark_ringfence",
}
NODE = "ringfence.native._node"
ABI = "0x030B0000"  # Python 3.11, the oldest that is supported
GENERATORS = {"gen_wire"}  # needs the checkout; not part of the wheel


def packages() -> list[str]:
    """Every folder with Python files below the mapped ones."""
    found = []
    for package, folder in FOLDERS.items():
        for init in sorted((ROOT / folder).rglob("__init__.py")):
            inner = init.parent.relative_to(ROOT / folder).parts
            found.append(".".join([package, *inner]))
    return found


def version() -> str:
    """The Cargo workspace's version: there is one number for everything."""
    with (ROOT / "Cargo.toml").open("rb") as file:
        return str(tomllib.load(file)["workspace"]["package"]["version"])


def maturin() -> str:
    """Path of the maturin program; `python -m maturin` is not found inside pip's isolated build."""
    beside = Path(sys.executable).parent / "maturin"
    found = shutil.which("maturin") or (str(beside) if beside.exists() else None)
    if found is None:
        raise SystemExit("maturin is missing: pip install 'maturin>=1.9.4'")
    return found


class BuildExt(build_ext):
    """Cython modules as usual; the Rust module by maturin, out of whose wheel the shared object is taken."""

    def build_extension(self, ext: Extension) -> None:
        if ext.name == NODE:
            self.build_node(Path(self.get_ext_fullpath(ext.name)))
        else:
            super().build_extension(ext)

    def build_node(self, target: Path) -> None:
        if shutil.which("cargo") is None:
            raise SystemExit("Rust is missing: install rustc and cargo >= 1.88, see https://rustup.rs")
        with tempfile.TemporaryDirectory() as folder:
            profile = os.environ.get("RINGFENCE_PROFILE", "release")  # `dev` is quick to build, slow to run
            command = [maturin(), "build", "--profile", profile, "--locked", "--auditwheel=skip"]
            command += ["--compression-method=stored", "--interpreter", sys.executable, "--out", folder]
            command += ["--manifest-path", str(ROOT / "native" / "Cargo.toml")]
            if not self.editable_mode:
                command.append("--strip")  # a developer keeps symbols, for profiles
            environment = os.environ | {"CARGO_TERM_PROGRESS_WHEN": "never"}
            done = subprocess.run(command, check=False, env=environment)
            if done.returncode:
                raise SystemExit(f"maturin ended with {done.returncode}; what cargo said stands above")
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (name,) = (name for name in archive.namelist() if name.endswith(".so"))
                target.parent.mkdir(parents=True, exist_ok=True)
                fresh = target.with_suffix(".new")
                fresh.write_bytes(archive.read(name))
                fresh.replace(target)  # a loaded library must not be written over


class BuildPy(build_py):
    """Leaves the generators out of the wheel."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        return [module for module in found if module[1] not in GENERATORS]


def cython(name: str) -> Extension:
    """A kernel: native/NAME.pyx, for the stable ABI."""
    return Extension(
        f"ringfence.native.{name}",
        [f"native/{name}.pyx"],
        depends=[str(path.relative_to(ROOT)) for path in sorted((ROOT / "native").glob("*.h"))],
        include_dirs=["native"],
        define_macros=[("Py_LIMITED_API", ABI), ("CYTHON_LIMITED_API", "1")],
        py_limited_api=True,
        extra_compile_args=["-O3", "-g0", "-fvisibility=hidden"],
        extra_link_args=["-s"],
    )


os.chdir(ROOT)  # setuptools wants the sources relative to here
generated = list((ROOT / "build" / "cython").rglob("*.c"))
kernels = cythonize(
    [cython("frame"), cython("group"), cython("slots")],
    build_dir="build/cython",
    include_path=["native"],
    compiler_directives={"language_level": 3, "autotestdict": False},
    quiet=True,
    # cythonize looks at the sources alone, not at the directives above
    force=any(file.stat().st_mtime < Path(__file__).stat().st_mtime for file in generated),
)
setup(
    version=version(),
    packages=packages(),
    include_package_data=False,  # MANIFEST.in is for the sdist
    package_data={package: ["py.typed", "*.pyi"] for package in FOLDERS},
    ext_modules=[*kernels, Extension(NODE, [], py_limited_api=True)],
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
    # Here, because setuptools warns at length of the same in pyproject.toml. Strict: the package is a tree of
    # links, so type checkers, import-linter and coverage see what Python sees.
    options={"editable_wheel": {"mode": "strict"}, "bdist_wheel": {"py_limited_api": "cp311"}},
)
