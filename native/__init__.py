"""The seam between Python and native code.

START HERE: what each module holds.

    _node.pyi     the PyO3 extension: `Node` (the data plane of one node), `fsck`, `Encoder`, `RecordReader`
    slots.pyx     key columns -> slots, the same that Spark computes
    group.pyx     slots -> rows by partition
    frame.pyx     headers of requests and answers, packed and read in place
    wire.py       every number of the protocol; generated from core/wire/wire.toml, as wire.pxd is
    messages.py   bodies of control requests and answers; cluster_messages.py, those of clusters
    gen_wire.py   generates wire.py and wire.pxd
    errors.py     the one exception tree
"""
