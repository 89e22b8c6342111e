"""Records the data directories of an older program that tests/system/test_upgrade.py opens.

    git archive e1e0e05 | tar x -C OLD && (cd OLD && make setup)
    python -m tests.upgrade.record OLD/.venv/bin/ringfence

writes tests/upgrade/data: one.tar.xz, three.tar.xz, and rows.json: what was in them,
and the hash of the metadata of the three nodes as the older program had it.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.upgrade import lives

DATA: Final = Path(__file__).parent / "data"


def packed(name: str, root: Path, folders: tuple[str, ...]) -> None:
    """The directories without spares, which a start makes anew."""

    def wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return None if info.name.endswith(".free") else info

    with tarfile.open(DATA / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        for folder in folders:
            archive.add(root / folder, folder, filter=wanted)


def main(program: Path) -> None:
    DATA.mkdir(exist_ok=True)
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="ringfence-record-") as folder:
        root = Path(folder)
        with lives.one(root, program) as node:
            lives.lived(node.address, 1)
            told["one"] = lives.plainly(lives.rows(node.address))
        packed("one", root, ("one",))
        cluster = lives.three(root, program).start()
        try:
            lives.lived(cluster.nodes[0].address, 3)
            told["three"] = lives.plainly(lives.rows(cluster.nodes[1].address))
            cluster.until_equal()
            hashed = cluster.listed(0)
            told["metadata"] = {"index": hashed["index"], "hash": hashed["hash"]}
        finally:
            for node in cluster.nodes:
                node.stop()
        packed("three", root, ("a", "b", "c"))
    (DATA / "rows.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
