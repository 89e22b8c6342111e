"""Control messages between nodes: bounded, checked, and lossy by design.

    envelope    what stands around every message: format, cluster, sender, receiver, kind
    hub         one ROUTER that listens, one DEALER for each peer; questions and answers
    chunks      a large body in pieces, one after the other
    courier     snapshots on their way out
    lives       which process speaks for a node
    question    the command line's one question to a control address

START HERE: `hub.Hub`. Consensus tolerates loss, so a full queue drops and counts; nothing waits for a peer.
"""
