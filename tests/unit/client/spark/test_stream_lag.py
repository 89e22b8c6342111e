"""What Spark's progress says of a stream's lag."""

from __future__ import annotations

import json

from ringfence.spark import waiting


def offset(**partitions: int) -> str:
    places = {name[1:]: {"offset": at} for name, at in partitions.items()}
    return json.dumps({"format": 1, "topic": 7, "version": 0, "partitions": places})


def test_rows_that_wait_are_told_by_partition_over_all_topics_and_other_sources_are_passed_over() -> None:
    sources = [
        {"endOffset": offset(p3=40, p4=10), "latestOffset": offset(p3=100, p4=10, p5=7)},
        {"endOffset": offset(p9=1), "latestOffset": offset(p9=3)},
        {"endOffset": '{"logOffset": 3}', "latestOffset": '{"logOffset": 5}'},
        {"endOffset": None, "latestOffset": None},
        {"endOffset": "12", "latestOffset": "13"},
    ]
    assert waiting({"sources": sources}) == {3: 60, 4: 0, 5: 7, 9: 2}
