"""What a node shows of its group."""

from __future__ import annotations

from ringfence.control.consensus.core import Role
from ringfence.control.consensus.messages import ConfigurationState
from tests.consensus.lab import Lab, leader


def test_a_leader_shows_what_it_knows_of_its_members_and_others_show_none() -> None:
    lab = leader(learners=(4,))
    shown = lab.node.status()
    assert (shown.role, shown.lead, shown.commit, shown.last_index) == (Role.LEADER, 1, 1, 1)
    assert [(m, s.match, s.is_learner) for m, s in shown.members.items()] == [
        (1, 1, False),
        (2, 1, False),
        (3, 1, False),
        (4, 1, True),
    ]
    assert shown.configuration == ConfigurationState((1, 2, 3), (), (4,))
    assert Lab(2).node.status().members == {}
