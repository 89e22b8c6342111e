"""Exchange control messages between nodes: limited in size, validated, and lossy by design.

    envelope        the header of every message: format, cluster, sender, receiver, kind
    hub             one listening ROUTER, one DEALER for each peer; questions and answers
    body_chunks     split a large body into chunks, and assemble received ones
    large_bodies    send snapshots, chunk by chunk
    incarnations    accept one process for each node
    question        ask one question at a control address, for the command line

START HERE: `hub.Hub`. Consensus tolerates loss: a full queue drops messages and counts them, and no sender
waits for a peer.
"""
