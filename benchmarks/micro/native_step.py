"""A step of native/src/micro/steps.rs in a process of its own, which does it as often as it is told."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Self

from benchmarks.dataset import bodies_file, schema_of
from benchmarks.native_build import programs
from benchmarks.paths import work_directory

if TYPE_CHECKING:
    from benchmarks.workload import Workload


def material(workload: Workload) -> list[str]:
    """The arguments that name bodies, schema and key columns of a workload."""
    schema = schema_of(workload)
    path = work_directory() / f"{workload.name}.schema"
    path.write_bytes(schema.serialize().to_pybytes())
    key = ",".join(str(schema.get_field_index(name)) for name in workload.key)
    return ["--bodies", str(bodies_file(workload)), "--schema", str(path), "--key", key]


class NativeStep:
    """Runs until closed. `run(count)` does the step that often; the pipe costs some 20 us a call."""

    def __init__(self, step: str, workload: Workload, partitions: int = 1) -> None:
        command = [programs()["micro"], "--step", step, "--partitions", str(partitions), *material(workload)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._read() != "ready":
            raise RuntimeError(f"micro {step} did not start, exit code {self._process.wait()}")

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, count: int) -> float:
        """Seconds that the steps alone took."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        told = self._read()
        if not told:
            raise RuntimeError(f"micro ended with {self._process.wait()}")
        return int(told) / 1e9

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
