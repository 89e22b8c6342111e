"""The scripts of confchange/: one configuration after the other, without any node."""

from __future__ import annotations

from ringfence.control.consensus import describe, joint_consensus
from ringfence.control.consensus.configuration_changes import NodeChange, Operation
from ringfence.control.consensus.errors import ChangeError
from ringfence.control.consensus.progress import Progress
from ringfence.control.consensus.tracker import Tracker
from tests.consensus.datadriven import Case

COMMANDS = {"simple", "enter-joint", "leave-joint"}
_OPERATIONS = {"v": Operation.VOTER, "l": Operation.LEARNER, "r": Operation.REMOVE, "u": Operation.UPDATE}


class ChangeScript:
    """The tracker of one file.

    New progress begins at the number of the case, which shows when it was made.
    """

    def __init__(self) -> None:
        self.tracker = Tracker(inflight_max=10)
        self._last_index = 0

    def run(self, case: Case) -> str:
        try:
            return self._run(case)
        finally:
            self._last_index += 1

    def _run(self, case: Case) -> str:
        operations = []
        for token in case.input.split():
            if len(token) < 2:
                return f"unknown token {token}"
            if token[0] not in _OPERATIONS:
                return f"unknown input: {token}"
            operations.append(NodeChange(_OPERATIONS[token[0]], int(token[1:])))
        tracker = self.tracker
        try:
            if case.command == "simple":
                changed = joint_consensus.simple(
                    tracker.configuration, tracker.progress, operations, self._new
                )
            elif case.command == "enter-joint":
                auto_leave = any(
                    argument.key == "autoleave"
                    and argument.values[0] in {"1", "t", "T", "true", "TRUE", "True"}
                    for argument in case.arguments
                )
                changed = joint_consensus.enter_joint(
                    tracker.configuration, tracker.progress, operations, self._new, auto_leave=auto_leave
                )
            elif case.command == "leave-joint":
                if operations:
                    return "this command takes no input"
                changed = joint_consensus.leave_joint(tracker.configuration, tracker.progress)
            else:
                return "unknown command"
        except ChangeError as error:
            return error.reason
        tracker.switch(*changed)
        return f"{describe.configuration(tracker.configuration)}\n{describe.progress_map(tracker.progress)}"

    def _new(self, *, is_learner: bool) -> Progress:
        return self.tracker.new_progress(self._last_index, is_learner=is_learner)
