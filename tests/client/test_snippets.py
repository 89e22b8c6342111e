"""The Python blocks of the documents run as they are printed, but for the address."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.harness import NodeProcess

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("page", "count"), [("README.md", 1), ("docs/python.md", 7)], ids=["readme", "python.md"]
)
def test_python_of_the_documents_runs(page: str, count: int, tmp_path: Path) -> None:
    chosen = [block for block in blocks(page) if "ringfence.spark" not in block]
    assert len(chosen) == count
    with NodeProcess(tmp_path / "data") as node:
        program = "\n".join(chosen).replace("tcp://127.0.0.1:7411", node.address)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout
