"""The command `ringfence`.

START HERE: `program.run`. Each command is a separate module, imported when the command runs, so that
`ringfence --help` loads neither Arrow nor the node.

Commands: bench, cluster, cohort, compact, completion, config, debug, demo, dev, fsck, node, partition,
producer, publish, read, rebalance, scope, serve, status, token, top, topic.

    connection, admin, topic_api, rebalance_api  connections to a data socket, admin API or control address
    endpoint                                   their options, spelled once for all commands
    layout, layout_api                         commands of `topic` and `partition` about layouts
    cohort_api, cohort_tables, cohort_read     access to cohorts; tables of them; `read --cohort`
    cohort_parked                              rows that queues have put aside
    fsck_cluster, missing_counts               checks of a whole cluster; unknown row counts in tables
    exit_codes, output, retry_until, progress_bar  exit codes, tables and NDJSON, notices of long waits
    tables, values, escape_control, schema_text  files of rows; values and texts for display and input
    embedded, local_cluster, local_ports       nodes that a command starts
    signals                                    signals that end a command, deferred while a child starts
    demo_steps, demo_spark                     the steps of `demo`
    dev_story, cluster_story, cluster_load     the demos of `dev`
    loaded_story                               what its demos under load share
    layout_story, layout_load, layout_jobs     its demo of splits and merges, with Spark
    pipeline_story, pipeline_jobs, pipeline_answers, spark_process  the demo of `dev` with Spark
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script; ends the process with a code of `exit_codes`."""
    try:
        from ringfence.control.cli.program import run  # noqa: PLC0415 - imported here, so that the package loads quickly

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        # An interrupt during the imports, which take seconds on a busy machine: use no other module here.
        as_json = '{"error": "Interrupted", "message": "interrupted", "exit": 130}'
        print(as_json if "--json" in sys.argv else "ringfence: interrupted", file=sys.stderr)  # noqa: T201 - as above
        sys.exit(130)
