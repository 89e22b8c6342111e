"""Answers of nodes, as the client reads them."""

from __future__ import annotations

import pytest

from ringfence.common.codec import Answer
from ringfence.native.errors import NotFoundError, RetriableError
from ringfence.native.messages import Refused, encode
from ringfence.native.wire import AnswerHeader, Code, Status


@pytest.mark.parametrize("code", [Code.UNKNOWN_TOPIC, Code.UNKNOWN_PARTITION])
def test_a_node_that_has_not_heard_of_a_topic_yet_is_asked_again(code: Code) -> None:
    body = memoryview(encode(Refused(message="topic 7 is not known here")))
    empty = AnswerHeader(*(0 for _ in AnswerHeader._fields))
    answer = Answer(empty._replace(status=Status.REFUSED, code=code, generation=4, topic=7), body)
    behind = answer.error("t", held=5)
    assert isinstance(behind, RetriableError)
    assert behind.retriable
    assert "generation 4, the routing table at 5" in str(behind)
    for held in (0, 4):
        assert isinstance(answer.error("t", held=held), NotFoundError)
