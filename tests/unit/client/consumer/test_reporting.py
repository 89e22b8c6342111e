"""What JOIN of a reader that reports says, and which names it refuses."""

from __future__ import annotations

import pytest

from ringfence.consumer.reporter import Reporter
from ringfence.consumer.reporting import BYTES_MAX, ReportingCore, Reports, settings_of
from ringfence.native.errors import InvalidArgumentError


def test_it_is_a_member_of_a_checkpoint_cohort_that_reports_by_itself_and_skips_what_is_gone() -> None:
    settings = settings_of("t", "loads", "spark-1")
    options = settings.options()
    assert (settings.mode, options.name, options.is_checkpoint) == ("checkpoint", "spark-1", True)
    assert (options.is_auto, options.skips, options.takeover) == (False, True, False)
    assert options.bytes_max == BYTES_MAX
    assert isinstance(ReportingCore.new_member(options), Reporter)


@pytest.mark.parametrize(("cohort", "member"), [("no name", "m"), ("", "m"), ("c", "x" * 65)])
def test_names_that_cannot_be_are_refused(cohort: str, member: str) -> None:
    with pytest.raises(InvalidArgumentError, match="1 to 64 letters"):
        settings_of("t", cohort, member)


def test_before_it_has_joined_nothing_is_reported_and_closing_does_nothing() -> None:
    reports = Reports("tcp://127.0.0.1:1", None, settings_of("t", "c", "m"))
    reports.report({})
    reports.close()
