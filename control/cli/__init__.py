"""The command `ringfence`.

START HERE: `program.main`. Each command is a module of its own and is imported when it is called, so that
`ringfence --help` loads neither Arrow nor the node. Exit codes stand in `exits`, output rules in `output`.

Commands: bench, cluster, compact, config, debug, demo, dev, fsck, node, partition, producer, publish, read,
rebalance, scope, serve, status, token, top, topic.

    connection, admin, topic_door, rebalance_door  which node, socket or API a command asks, with which token
    fsck_cluster, missing_counts, patience, bar    parts: checks, unknown counts, waiting, progress
    tables, values, printable, schema_text         files of rows; values and texts as they are shown or typed
    embedded, local_cluster, local_ports           nodes that a command starts
    demo_steps, demo_spark                         the steps of `demo`
    dev_story, cluster_story, cluster_load         the stories of `dev`
    pipeline_story, pipeline_jobs, pipeline_answers, spark_process  the story with Spark
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script; ends the process with a code of `exits`."""
    try:
        from ringfence.control.cli.program import run  # noqa: PLC0415 - after the package, so that it loads quickly

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        # While modules load, which takes seconds on a busy machine: nothing of ours may be there yet.
        as_json = '{"error": "Interrupted", "message": "interrupted", "exit": 130}'
        print(as_json if "--json" in sys.argv else "ringfence: interrupted", file=sys.stderr)  # noqa: T201 - as above
        sys.exit(130)
