"""One data directory.

    DATA/store.toml          identity: cluster, history, store, node, format
    DATA/lock                held by the process that uses the directory
    DATA/metadata/snapshot   the state at an index
    DATA/metadata/journal    the entries after it
    DATA/LOG_ENDS            how far each partition's log was known to reach
    DATA/log/                segment files of the native store

    directory, identity, lock    open or create a directory; which programs may; one process
    raft_store                   the durable log of consensus: journal (records), snapshot, installing
    log_ends                     the file of that name
    files                        writes that a crash leaves old or new

START HERE: `directory.open_directory`, then `raft_store.RaftStore`. Nothing here ever removes what it cannot
read: damage and newer formats end the start with the file's name and the way out.
"""
