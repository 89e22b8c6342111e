"""Put a configuration into effect: from an applied change, at the start, and from a snapshot."""

from __future__ import annotations

from ringfence.control.consensus import configuration_rules, describe, linearizable_reads, replication, roles
from ringfence.control.consensus.configuration_changes import Change
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.joint_consensus import Changed, restored
from ringfence.control.consensus.messages import NOBODY, ConfigurationState
from ringfence.control.consensus.progress import Progress
from ringfence.control.consensus.trace import Level


def apply_change(core: Core, change: Change) -> ConfigurationState:
    """Apply a committed change; return the configuration to store with the applied index.

    Raises:
        ChangeError: the change is not possible. A leader that validates changes appends none such.
    """
    return switch(core, configuration_rules.outcome(core, change))


def restore(core: Core, state: ConfigurationState) -> None:
    """Use the configuration of a snapshot, or of storage."""
    last_index = core.log.last_index()

    def new_progress(*, is_learner: bool) -> Progress:
        return core.tracker.new_progress(last_index, is_learner=is_learner)

    switch(core, restored(state, new_progress))


def switch(core: Core, changed: Changed) -> ConfigurationState:
    """Use a configuration from now on. A leader applies it immediately, or steps down."""
    core.tracker.switch(*changed)
    configuration = core.tracker.configuration
    state = configuration.state()
    core.say(Level.INFO, f"switched to configuration {describe.configuration(configuration)}")
    if core.role is not Role.LEADER:
        return state
    own = core.tracker.progress.get(core.id)
    if own is None or own.is_learner:
        if core.options.step_down_on_removal:
            roles.become_follower(core, core.term, NOBODY)
        return state
    if not configuration.incoming:
        return state
    if replication.advance_commit(core):
        # A smaller majority may already have entries that the larger one lacked.
        linearizable_reads.on_commit(core)
        replication.broadcast_append(core)
    else:
        for member in core.tracker.members:
            if member != core.id:
                replication.send_append(core, member, also_if_empty=False)
    linearizable_reads.answer_confirmed(core)
    if core.transferee != NOBODY and core.transferee not in configuration.voters:
        core.transferee = NOBODY
    return state
