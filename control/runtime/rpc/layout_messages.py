"""Messages of layout changes between nodes. They exist from level 2 of the cluster on.

The owner of a child fetches producer tables and readers' gates of the sources with TableOf and GatesOf. The
leader asks owners with TellSealed whether sealed partitions are empty, and with SketchOf where to split.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct, field

from ringfence.control.runtime.rpc.message_base import CallBase, Number, ReplyBase, Text
from ringfence.control.state_machines.layout.plan import BUCKETS

# Bytes of one page of a producer table: 100 pages for the largest table, each a few ms to send.
PAGE_BYTES_MAX: Final = 256 << 10
# Bytes of the gates of one source, which are not paged: an envelope takes 4 MiB.
GATES_BYTES_MAX: Final = 2 << 20
# Readers that an answer about the size of gates names: the largest ones.
READERS_NAMED: Final = 8
# Sealed partitions of one TellSealed: an answer is below 100 KiB.
SEALED_MAX: Final = 1_024


class TableOf(CallBase, frozen=True, kw_only=True, tag="table_of"):
    """Fetch a page of the producer table of `source`: entries that children with slots `lo` to `hi` inherit.

    `change` is the layout change; 0: the source is sealed. Entries have ids above `after` and were touched in
    the record `since` or later.
    """

    change: Number
    topic: Number
    source: Number
    lo: Number
    hi: Number
    since: Number = 0
    after: Number = 0


class GatesOf(CallBase, frozen=True, kw_only=True, tag="gates_of"):
    """Fetch the gates of registered readers of `source`, as of its end after `records` records.

    `size_only`: only their size, while the source still takes rows. `partitions`: those whose gates are
    wanted, of all whose gates the source's log has; None: all.
    """

    change: Number
    topic: Number
    source: Number
    records: Number = 0
    size_only: bool = False
    partitions: tuple[Number, ...] | None = None


class TellSealed(CallBase, frozen=True, kw_only=True, tag="sealed_figures"):
    """Tell start, end and open stages of sealed partitions that this node owns."""

    topic: Number
    partitions: Annotated[tuple[Number, ...], Meta(max_length=SEALED_MAX)]


class SketchOf(CallBase, frozen=True, kw_only=True, tag="sketch_of"):
    """Tell the weights of equal parts of the slots of a partition that this node owns."""

    topic: Number
    partition: Number


class ShowTransitions(CallBase, frozen=True, kw_only=True, tag="show_transitions"):
    """Show open layout changes with what each waits for. `here`: only this node's view."""

    here: bool = False


class TablePage(ReplyBase, frozen=True, kw_only=True, tag="table_page"):
    """A page of a producer table, in the form that the engine takes.

    It is as of the record `records`; `last` is the greatest id in it. `more`: there are entries with greater
    ids.
    """

    page: Annotated[bytes, Meta(max_length=PAGE_BYTES_MAX + 4_096)]
    records: Number
    last: Number
    more: bool


class Gates(ReplyBase, frozen=True, kw_only=True, tag="gates"):
    """The gates of a source, opaque; empty with `size_only`. `readers` are the largest: (name, gates)."""

    gates: Annotated[bytes, Meta(max_length=GATES_BYTES_MAX)] = b""
    size: Number = 0
    readers: Annotated[tuple[tuple[Text, Number], ...], Meta(max_length=READERS_NAMED)] = ()


class SealedLog(Struct, frozen=True, array_like=True):
    """The log of a sealed partition at its owner. `stages` counts its open stages."""

    partition: Number
    start_offset: Number
    end_offset: Number
    stages: Number


class SealedLogs(ReplyBase, frozen=True, kw_only=True, tag="sealed_logs"):
    """The partitions that this node owns and serves; others are left out."""

    logs: Annotated[tuple[SealedLog, ...], Meta(max_length=SEALED_MAX)]


class SketchWeights(ReplyBase, frozen=True, kw_only=True, tag="sketch_weights"):
    """Rows of 1,024 equal parts of a partition's slots, of some minutes; empty: there is no sketch."""

    weights: Annotated[tuple[Number, ...], Meta(max_length=BUCKETS)] = ()


class ExplainLayout(CallBase, frozen=True, kw_only=True, tag="explain_layout"):
    """Show the last decision about automatic splits and merges of a topic. `here`: only of this node."""

    topic: Text
    here: bool = False


class ChangeLayout(CallBase, frozen=True, kw_only=True, tag="change_layout"):
    """Change or show layouts, for operators of a cluster without tokens.

    `verb` is split, merge, repartition, abort, auto, layout or partition. `partitions` are ids or names.
    `auto`: settings of the topic; None removes one.
    """

    verb: Text
    topic: Text = ""
    partitions: Annotated[tuple[Text, ...], Meta(max_length=2)] = ()
    at: Annotated[tuple[Number, ...], Meta(max_length=4_096)] = ()
    into: Number = 0
    even: bool = False
    change: Number = 0
    wait_ms: Number = 0
    preview: bool = False
    why: Annotated[str, Meta(max_length=1_000)] = ""
    auto: dict[Text, int | None] = field(default_factory=dict)


LayoutReply = TablePage | Gates | SealedLogs | SketchWeights
