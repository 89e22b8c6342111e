"""Commit the rows of a scope in all of its partitions, or in none.

A *stage* holds rows that are on disk and not readable. A *scope* is the name under which one writer stages
and commits. A *transaction* is one epoch of a scope, from BEGIN to COMMIT or EXPIRE.

    requests            serve BEGIN, COMMIT, EXPIRE; publish committed epochs in the order of epochs
    begin_queue         propose at most one BEGIN per scope at a time
    commit_queue        decide commits of one driver in the order in which they arrived
    staged_row_counts   count staged rows at their owners before a COMMIT is decided
    seen_claims         ask gate owners whether gates are locked for a COMMIT that consumed rows of a cohort
    consumed_positions  write the positions of such commits, once their rows are published
    forced_ends         end locks that keep other members out for too long
    publish_watch       wait until a committed epoch is published; find what its owners lack
    unpublished         report committed epochs that stay unpublished as health reasons
    lost_partitions     give up staged rows that no replica has any more
"""
