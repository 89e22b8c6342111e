"""Modules without a test file of their name, by the file that tests them. The list only shrinks.

A test file of the name stands at the path of the module: `tests/unit/client/send/test_sender.py` would be
that of `client/send/sender.py`. To write one, take the module off the list and lower the maximum.
"""

from __future__ import annotations

from typing import Final

TESTED_ELSEWHERE_MAX: Final = 76
BY_TEST: Final[dict[str, tuple[str, ...]]] = {
    "tests/component/client/test_arguments.py": ("client/common/arguments.py",),
    "tests/component/client/test_commit_outcome.py": ("client/scopes.py", "client/send/stager.py"),
    "tests/component/client/test_streams.py": ("client/arrow/batches.py",),
    "tests/component/client/test_unresponsive_node.py": ("client/network/failover.py",),
    "tests/component/control/test_reassignment.py": (
        "control/state_machines/reassignment/cleanup.py",
        "control/state_machines/reassignment/messages.py",
    ),
    "tests/component/control/test_recordings.py": (
        "control/consensus/frozen.py",
        "control/consensus/step_recording.py",
    ),
    "tests/consensus/test_cluster.py": ("control/consensus/invariants.py",),
    "tests/consensus/test_leadership.py": (
        "control/consensus/configuration_changes.py",
        "control/consensus/core.py",
        "control/consensus/errors.py",
        "control/consensus/events.py",
        "control/consensus/leader.py",
        "control/consensus/configuration_rules.py",
        "control/consensus/raft_node.py",
        "control/consensus/ready.py",
        "control/consensus/roles.py",
        "control/consensus/terms.py",
        "control/consensus/tracker.py",
    ),
    "tests/consensus/test_limits.py": ("control/consensus/options.py", "control/consensus/replication.py"),
    "tests/consensus/test_scripts.py": (
        "control/consensus/describe.py",
        "control/consensus/follower.py",
        "control/consensus/follower_log.py",
        "control/consensus/storage_work.py",
    ),
    "tests/spark/test_source_alone.py": (
        "client/spark/batch_read.py",
        "client/spark/compact.py",
        "client/spark/options.py",
        "client/spark/read_bounds.py",
        "client/spark/ranges.py",
        "client/spark/source.py",
        "client/spark/stream_read.py",
    ),
    "tests/spark/test_source_write.py": ("client/spark/batch_write.py", "client/spark/stream_write.py"),
    "tests/spark/test_spark.py": ("client/spark/read.py", "client/spark/write.py"),
    "tests/spark/test_types.py": ("client/spark/schema.py",),
    "tests/system/client/test_compact.py": (
        "client/compact.py",
        "client/compaction/file_types.py",
        "client/compaction/manifest.py",
        "client/compaction/sort.py",
    ),
    "tests/system/client/test_frames.py": ("client/arrow/pandas_frames.py",),
    "tests/system/client/test_running_node.py": (
        "client/admin.py",
        "client/client.py",
        "client/send/exit_flush.py",
        "client/send/failures.py",
    ),
    "tests/system/client/test_unsound_arrays.py": ("client/arrow/array_checks.py",),
    "tests/system/test_transactions.py": ("client/aio_scopes.py", "client/transaction.py"),
    "tests/unit/client/network/test_io_thread.py": (
        "client/common/fork.py",
        "client/network/peer.py",
        "client/network/request.py",
    ),
    "tests/unit/client/send/test_inflight.py": (
        "client/common/send_effects.py",
        "client/send/partition_queue.py",
    ),
    "tests/unit/client/send/test_linger.py": ("client/send/coalesce.py",),
    "tests/unit/client/test_producer.py": (
        "client/arrow/encode.py",
        "client/arrow/keys.py",
        "client/send/send_future.py",
        "client/send/sender.py",
    ),
    "tests/unit/client/test_producer_reentrant.py": ("client/common/locks.py",),
    "tests/unit/client/test_reader.py": ("client/cluster/offsets.py",),
    "tests/unit/control/consensus/test_codec.py": ("control/consensus/messages.py",),
    "tests/unit/control/consensus/test_read_queue.py": ("control/consensus/linearizable_reads.py",),
    "tests/unit/control/state_machines/metadata/test_nodes.py": (
        "control/state_machines/metadata/cluster.py",
        "control/state_machines/metadata/node_checks.py",
    ),
    "tests/unit/control/state_machines/metadata/test_reassignments.py": (
        "control/state_machines/metadata/reassignment_checks.py",
        "control/state_machines/metadata/reassignment_rules.py",
    ),
    "tests/unit/control/state_machines/metadata/test_rebalances.py": (
        "control/state_machines/rebalance/plans.py",
    ),
    "tests/unit/control/state_machines/metadata/test_state_machine_requests.py": (
        "control/state_machines/metadata/tokens.py",
    ),
    "tests/unit/control/state_machines/metadata/test_table_progress.py": (
        "control/state_machines/metadata/state_hash.py",
    ),
    "tests/unit/control/state_machines/metadata/test_topics.py": (
        "control/state_machines/metadata/topic_checks.py",
    ),
    "tests/unit/control/state_machines/placement/test_planner.py": (
        "control/state_machines/placement/draft_placement.py",
        "control/state_machines/placement/replica_round.py",
    ),
    "tests/unit/control/state_machines/rebalance/test_runner_drain.py": (
        "control/state_machines/metadata/move_records.py",
    ),
}
TESTED_ELSEWHERE: Final = {module: test for test, modules in BY_TEST.items() for module in modules}
