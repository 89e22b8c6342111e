"""The exception tree: complete, a branch for each thing to do, and whole after a trip to another process."""

from __future__ import annotations

import copy

import pytest

from ringfence.native import errors, wire


def test_every_code_of_the_wire_has_its_class() -> None:
    assert set(errors.CODE_ERRORS) == set(wire.Code)


@pytest.mark.parametrize("code", list(wire.Code), ids=lambda code: code.name)
def test_a_refusal_is_retriable_exactly_when_the_wire_says_so(code: wire.Code) -> None:
    error = errors.refusal(code, "no", retry_after_s=0.5, topic="t", partition=3, sent=4)
    assert error.retriable == (code in wire.RETRIABLE)
    assert (error.code, error.topic, error.partition, error.sent) == (code, "t", 3, 4)
    assert str(error) == f"no [topic='t', partition=3, code='{code.name.lower()}', sent=4]"
    if isinstance(error, errors.RetriableError):
        assert error.retriable and error.retry_after_s == 0.5


def test_nothing_that_is_refused_for_good_may_have_been_stored() -> None:
    for code in (wire.Code.UNKNOWN_OUTCOME, wire.Code.STORAGE_FAILED, wire.Code.TOO_OLD):
        error = errors.refusal(code, "?")
        assert isinstance(error, errors.UnknownOutcomeError) and not isinstance(error, errors.RefusedError)


def test_a_code_of_a_newer_node_is_a_final_refusal_that_shows_it() -> None:
    error = errors.refusal(60_000, "new")
    assert type(error) is errors.RefusedError
    assert str(error) == "new [unknown_code=60000]"


def test_an_error_survives_a_copy_with_all_its_values() -> None:
    # copy uses the protocol by which exceptions travel between processes
    error = errors.refusal(wire.Code.WRONG_SLOT, "no", topic=7, partition=3, row=4)
    twin = copy.copy(error)
    assert (type(twin), str(twin), twin.values(), twin.retriable) == (
        type(error),
        str(error),
        error.values(),
        False,
    )
    reroute = copy.copy(errors.RerouteError("moved", reason=wire.RedirectReason.SEALED, partition=1))
    assert (reroute.reason, reroute.retriable, reroute.partition) == (wire.RedirectReason.SEALED, True, 1)


def test_branches_are_what_a_caller_can_do() -> None:
    branches = {kind.__name__ for kind in errors.RingfenceError.__subclasses__()}
    assert branches == {
        "RetriableError",
        "RerouteError",
        "RefusedError",
        "UnknownOutcomeError",
        "WaitTimeoutError",
        "ClosedError",
        "StorageError",
        "ConfigError",
    }
    for standard, ours in ((TimeoutError, errors.WaitTimeoutError), (ValueError, errors.ConfigError)):
        assert issubclass(ours, standard)


def test_a_value_that_an_error_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="BatchError has no value 'row'"):
        errors.BatchError("no").row  # noqa: B018
