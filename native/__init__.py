"""The border between Python and native code.

START HERE: the modules.

    _node.pyi       the PyO3 extension: `Node` (the data plane of one node), `fsck`, `Encoder`, `RecordReader`
    slots.pyx       compute slots from key columns, equal to the slots that Spark computes
    group.pyx       group row numbers by partition, from slots
    frame.pyx       pack and read the headers of requests and answers in place
    wire.py         all numbers of the protocol; generated from core/wire/wire.toml, like wire.pxd
    messages.py     bodies of control requests and answers; cluster_messages.py has the bodies for clusters,
                    layout_messages.py those of layout changes, cohort_messages.py those of cohorts
    struct_types.py let msgspec read the fields of types while one thread imports them
    gen_wire.py     generates wire.py and wire.pxd
    errors.py       the exception tree of all packages
"""
