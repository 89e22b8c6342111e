"""Documents say what the code says."""

from __future__ import annotations

import re

from tests import documents


def test_the_tables_of_the_operations_guide_are_fresh() -> None:
    text = documents.DOCUMENT.read_text()
    assert set(re.findall(r"<!-- table: ([a-z ]+) -->", text)) == set(documents.TABLES)
    assert documents.filled(text) == text, "run python -m tests.documents"


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in [*documents.ROOT.glob("*.md"), *(documents.ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
