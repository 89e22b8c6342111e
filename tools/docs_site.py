"""Build the documentation site from the repository's pages: `python tools/docs_site.py [--output DIR]`.

Pages are copied into a folder of their own, in the layout of the repository, so that links between them stay
as they are. A link to a file that is not a page (a test, an example) becomes plain text. mkdocs checks every
link and every anchor and fails where one leads nowhere. The site loads nothing from other hosts.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGED = ROOT / "build" / "docs" / "pages"
SITE = ROOT / "build" / "docs" / "site"
FIRST_PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
PAGES = (*FIRST_PAGES, "docs/**/*.md", "benchmarks/record/*.md")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)#]+)(#[^)]*)?\)")
LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]*\ssrc=["']?(https?://[^"'\s>]+)"""
    r"""|<link[^>]*rel=["']?(?:stylesheet|preconnect)[^>]*href=["']?(https?://[^"'\s>]+)"""
)


def pages() -> list[Path]:
    return sorted({path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern)})


def linked(text: str, page: Path, known: set[Path]) -> str:
    """The page with links to other pages only; a target that does not exist stays, for mkdocs to refuse."""

    def link(found: re.Match[str]) -> str:
        target = (ROOT / page).parent.joinpath(found[2]).resolve()
        is_page = target.is_relative_to(ROOT) and target.relative_to(ROOT) in known
        return found[0] if is_page or not target.exists() else found[1]

    return LINK.sub(link, text)


def stage() -> None:
    shutil.rmtree(STAGED, ignore_errors=True)
    known = set(pages())
    for page in known:
        target = STAGED / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(linked((ROOT / page).read_text(), page, known))


def loaded_from_elsewhere(site: Path) -> set[str]:
    """Scripts, styles and images of other hosts: a reader without a network would miss them."""
    return {
        found[1] or found[2] for page in site.rglob("*.html") for found in LOADED.finditer(page.read_text())
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site and check its links.")
    parser.add_argument("--output", type=Path, default=SITE, help="folder of the site; it is replaced")
    output = parser.parse_args().output.resolve()
    stage()
    # Not `--quiet`: it hides the warnings that `--strict` counts.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    command += ["-f", str(ROOT / "mkdocs.yml"), "-d", str(output)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # a page of advice in each build
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        return done.returncode
    if elsewhere := loaded_from_elsewhere(output):
        sys.stderr.write(f"the site loads from other hosts: {', '.join(sorted(elsewhere))}\n")
        return 1
    sys.stdout.write(f"{output / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
