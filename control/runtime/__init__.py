"""One node as one process: native threads for data, one asyncio loop for everything else.

START HERE: `node.Node` puts the pieces together and starts them in order.

    settings    TOML file, environment, flags
    proposals   propose(command) -> index and result; group commit through the journal
    driver      the native node inside the loop: orders down, outcomes up
    follower    what the metadata says becomes orders, one entry after the other
    requests    control requests of clients, answered within their deadlines
    health      why the node is not all well, as sentences
    order_batches  orders of the leader to one node, many in one question
"""
