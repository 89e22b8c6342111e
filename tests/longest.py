"""Test files that take long, the longest first: `make test` begins with them, so its workers end together.

From `--durations` on two cores. A file that is not here runs behind them; the order proves nothing.
"""

from __future__ import annotations

from typing import Final

FILES: Final = (
    "tests/spark/test_demo_pipeline.py",
    "tests/spark/test_cluster_kills.py",
    "tests/spark/test_kills.py",
    "tests/system/test_layout_changes.py",
    "tests/spark/test_demo_layout.py",
    "tests/system/test_layout_kills.py",
    "tests/system/test_layouts_of_three.py",
    "tests/system/test_layouts_alone.py",
    "tests/system/test_log_check.py",
    "tests/system/test_changes.py",
    "tests/system/test_failing_target.py",
    "tests/system/test_admin_http.py",
    "tests/spark/test_bad_input.py",
    "tests/system/test_force_owner.py",
    "tests/system/test_faults.py",  # one of its tests waits half a minute
    "tests/system/test_demo_cluster.py",
    "tests/system/test_cluster_faults.py",
    "tests/spark/test_documents.py",
    "tests/system/test_tokens.py",
    "tests/system/test_transactions.py",
    "tests/system/test_chaos.py",
    "tests/system/test_cluster.py",
    "tests/system/test_comes_back.py",
    "tests/system/test_ring_commit.py",
    "tests/system/test_crash.py",
    "tests/system/test_cluster_repair.py",
    "tests/system/test_replication.py",
    # Both compile in the profile of `cargo test`. Builds of one profile wait in line.
    "tests/benchmarks/test_resources.py",
    "tests/packaging/test_wheel.py",
    "tests/sim/test_simulation.py",
    "tests/sim/test_planted_clusters.py",
    "tests/sim/test_matrix.py",
    "tests/sim/test_data_plane.py",
    "tests/search/test_search.py",
    "tests/unit/client/consumer/test_member.py",
    "tests/sim/test_planted_data_plane.py",
    "tests/unit/control/state_machines/metadata/test_state_machine.py",
    "tests/search/test_cohorts.py",
    "tests/sim/test_planted_layouts.py",
    "tests/sim/test_planted_layout_engine.py",
    "tests/component/control/test_layout_policy.py",
    "tests/consensus/test_planted.py",
    "tests/consensus/test_cluster.py",
    "tests/benchmarks/test_peers.py",
    "tests/system/client/test_running_node.py",
    "tests/system/cli/test_serve.py",
    "tests/system/cli/test_commands.py",
    "tests/unit/control/state_machines/placement/test_planner.py",
)
