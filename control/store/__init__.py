"""Keep one data directory: identity, lock, the durable log of consensus, and the ends of partition logs.

    DATA/store.toml           identity: cluster, history, store, node, format
    DATA/lock                 locked by the process that uses the directory
    DATA/metadata/snapshot    the state at an index
    DATA/metadata/journal     the entries after the snapshot
    DATA/metadata/installing  marks that a received snapshot replaces the log
    DATA/LOG_ENDS             lower bounds of the partition logs' ends
    DATA/log/                 segment files of the native store

    directory, identity, lock    open or create a directory; check its identity and level; admit one process
    raft_store                   the durable log of consensus
    journal, records             the append-only file of entries, and the bytes of one record
    write_and_read_snapshot      the file of a state
    install_mark                 marks that a received snapshot replaces the log
    log_ends                     the file LOG_ENDS
    files                        atomic file replacement and directory syncs

START HERE: `directory.open_directory`, then `raft_store.RaftStore`. No module removes data that it cannot
read: damage and newer formats end the start with the file's name and the way out.
"""
