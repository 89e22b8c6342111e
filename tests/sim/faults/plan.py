"""What is drawn ahead for one seed: which faults at all, how often, and each strike with its time.

Swarm testing (Groce and others, ISSTA 2012): most seeds leave most kinds out, some have one kind only: what
shows under one fault hides under ten. A strike carries dice of its own, so that others can be left out of a
replay without changing it (shrink.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Self, TypeVar

from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.runtime.reassignment.order_batches import BATCH_ORDERS_MIN
from ringfence.native.wire import LEVEL_NEWEST
from tests.sim.faults.intervals import (
    CHANGES,
    DISKS,
    FORCED_LAYOUTS,
    FORCED_THEME,
    KINDS,
    LATE_THEME,
    LAYOUTS,
    OLDER_THEME,
    TRUNCATED,
)

OLDER: Final = 0.1
"""Share of such seeds among those with three replicas."""
FORCED: Final = 0.25
"""Share of such seeds among those with replicas."""
TRUNCATING: Final = 0.35
"""Share of such seeds among those with replicas: one of eight of all."""
FORCED_TOO: Final = 0.1
"""Share of such seeds among those with layout changes."""
STRUCK_TOO: Final = (0.15, 0.4, 1.0)
"""Shares of its other strikes that such a seed keeps: while owners are missing, nothing can be split."""
NAMED: Final = 3
"""Seeds that are a multiple of it have a producer with a name."""
KEYLESS: Final = 0.25
"""Share of seeds with layout changes whose topic has no key."""
LINEAGES: Final = 0.2
"""Share of seeds that have them in a mix."""
NOT_MOVED: Final = ("row_rot",)
"""Left out where partitions move: whose copy rotted is quarantined, and nothing brings it back yet."""
FORCING: Final = ("force", "older")
"""Left out where partitions split and merge, but in seeds of their own: an operator who accepts a loss."""
CROWD: Final = 6
"""With more kinds than these each strikes more seldom: a cluster that never serves shows nothing."""
THEMES: Final = (
    ("unheard",),
    ("unheard", "away", "burst"),
    ("emptied", "power"),
    ("emptied", "truncate", "die_in_call"),
    ("row_sync_error", "power", "kill"),
    ("sync_error", "power", "die_in_call", "burst"),
    ("forgotten", "woken", "transfer", "pause_leader", "isolate"),
    ("change", "vote", "transfer", "kill_leader"),
)
"""Kinds that make little of each other alone. A seed of a theme has nothing else, and that often."""
REPLICATED: Final = 0.4
"""Share of seeds whose rows have three replicas."""
ALONE: Final = 0.4
"""Of the others, the share in which partitions move though each has one replica only."""
LATE: Final = 0.15
"""Share of seeds whose theme are disks of rows that are late, and machines that die of it; of the others
as many have such strikes beside theirs."""
COMMITTING: Final = 0.4
"""Share of seeds with transactional writers."""
LATE_COMMITS: Final = 0.15
UPGRADED: Final = 0.2  # clusters that an older program began
THEMED: Final = 0.4
ALWAYS: Final = ("kill", "partition")
"""A seed counts only with crashes and partitions."""


def level_without_layouts(seed: int) -> int:
    """The newest level of a seed without layout changes.

    Its producer with a name chooses partitions by itself. In a topic without key, that is a name of the level
    before.
    """
    return LAYOUT_LEVEL - 1 if seed % NAMED == 0 else LEVEL_NEWEST


def _is_upgraded(seed: int) -> bool:
    return Random(f"level {seed}").random() < UPGRADED


@dataclass(frozen=True, slots=True)
class Strike:
    """One thing that goes wrong, or that an operator does. `dice` seeds whatever it draws."""

    number: int
    at_us: int
    kind: str
    dice: int

    def __str__(self) -> str:
        return f"#{self.number} {self.kind} at {self.at_us / 1e6:.3f} s"


@dataclass(frozen=True, slots=True)
class Plan:
    """One seed."""

    seed: int
    machines: int
    shards: int
    segment_bytes: int
    producers: int
    send_us: int
    partitions: int
    power: float
    loss: float
    double: float
    overtake: float
    delay_us: int
    jitter_us: int
    slow: float
    seconds: int
    cold: bool = False
    """Whether strikes begin before the cluster serves."""
    trail: int = 1_024
    """Entries that stay behind a snapshot; with few, who was away needs the snapshot."""
    options: tuple[tuple[str, int], ...] = ()
    """Limits of consensus: small messages and windows split what usually goes at once."""
    last_cut: bool = True
    """Whether the power of all goes once more before the reckoning."""
    journal_bytes: int = 16 << 10
    """Above it the metadata is compacted: with few, a snapshot is all that there is to send."""
    rows_max: int = 64
    """Of a batch: with many, files of rows fill and are used anew."""
    late_us: int = 200_000
    """How late a message may be that others overtake."""
    wild_clocks: bool = False
    """Whether clocks run three times too fast, not only a quarter."""
    again: float = 0.0
    """Share of snapshots that come once more, much later."""
    replication: int = 1
    """Of the topic that rows go to."""
    moves: bool = False
    """Whether its partitions get other owners and replicas."""
    limits: tuple[tuple[str, int], ...] = ()
    """Of the cluster: how long a move may be reversed, how fast a copy is, how many there are at once."""
    writers: int = 0
    """Who stage, and commit epochs over several partitions."""
    commit_us: int = 200_000
    """Mean time between two epochs of a writer."""
    late_commits: float = LATE_COMMITS
    """Share of epochs whose commit comes long after what they staged."""
    level: int = LEVEL_NEWEST
    """Of the cluster at its birth; an older one is raised by an administrator on the way."""
    newest: int = LEVEL_NEWEST
    """The level that the program knows; the cluster is raised to it."""
    layouts: bool = False
    """Whether partitions are split and merged; rows have keys, and clients that follow a lineage."""
    keyless: bool = False
    """Whether a topic whose partitions split and merge has no key: a name, or nothing, orders its rows."""
    stall: float = 0.0
    """Share of groups of rows that their disk is late with."""
    stall_us: int = 0
    """By how much at most."""
    heard_us: int = 0
    """How late at most a node hears what its engine has done: an entry may be applied before."""
    together: int = BATCH_ORDERS_MIN
    """So many orders of one turn go to a node in one question: with few, nearly all do."""
    strikes: tuple[Strike, ...] = field(default=())

    @classmethod
    def mixed(cls, seed: int, seconds: int = 10, machines: int = 3) -> Self:
        """As `drawn`; some seeds have splits and merges beside their strikes."""
        plan = cls.drawn(seed, seconds, machines)
        is_themed = any(each.kind in FORCING for each in plan.strikes)
        has_layouts = Random(f"lineage {seed}").random() < LINEAGES and not is_themed
        return with_layouts(plan) if has_layouts else plan

    @classmethod
    def drawn(cls, seed: int, seconds: int = 10, machines: int = 3) -> Self:
        random = Random(f"plan {seed}")
        replicas = Random(f"replicas {seed}")  # beside the others: their draws stay
        scopes = Random(f"scopes {seed}")  # the same
        disks = Random(f"disks {seed}")
        themed = random.random() < THEMED
        kinds = _kinds(random, themed=themed)
        strikes = _struck(random, kinds, seconds, themed=themed)
        rots = any(kind in NOT_MOVED for _, kind, _ in strikes)
        is_late = disks.random() < LATE and not rots
        if is_late:
            strikes = _repeated(disks, LATE_THEME, seconds)
        elif disks.random() < LATE:
            strikes += _repeated(disks, DISKS, seconds)
        extra, limits = 0, dict[str, int]()
        replication = 3 if replicas.random() < (REPLICATED / 2 if is_late else REPLICATED) else 1
        moves = replication > 1 or is_late or (disks.random() < ALONE and not rots)
        if moves:
            extra = replicas.choice([0, 1])
            strikes = [each for each in strikes if each[1] not in NOT_MOVED]
            strikes += [] if is_late else _changes(replicas, seconds)
            limits = _limits(replicas)
        theme, strikes = _themed(seed, seconds, strikes) if replication > 1 else ("", strikes)
        is_forced = theme == "forced"
        extra = max(0, 5 - machines) if is_forced else extra
        return cls(
            seed=seed,
            level=level_without_layouts(seed) if theme or not _is_upgraded(seed) else 0,
            newest=level_without_layouts(seed),
            machines=machines + extra,
            shards=random.choice([1, 1, 2]),
            segment_bytes=random.choice([32_768, 32_768, 65_536, 262_144]),
            producers=2,
            send_us=random.choice([30_000, 60_000, 90_000]),
            partitions=random.choice([3, 4, 6]) - (2 if is_late else 0),
            power=random.choice([0.0, 0.5, 1.0]),
            # With a fifth lost among five machines, hardly an open of a name reaches all partitions.
            loss=min(random.choice([0.0, 0.0, 0.01, 0.05, 0.2]), 0.05 if is_forced else 1.0),
            double=random.choice([0.0, 0.0, 0.02, 0.1]),
            overtake=random.choice([0.0, 0.0, 0.02, 0.2]),
            delay_us=random.choice([50, 200, 200, 2_000]),
            jitter_us=random.choice([100, 300, 3_000, 20_000]),
            slow=random.choice([0.0, 0.0, 0.02, 0.2]),
            seconds=seconds,
            cold=random.random() < 0.15 and not is_forced,
            last_cut=random.random() < 0.5,
            options=random.choice(
                [
                    (),
                    (("message_bytes_max", 100),),
                    (("message_bytes_max", 300), ("inflight_messages_max", 2)),
                ]
            ),
            trail=random.choice([0, 0, 0, 2, 8, 1_024]),
            journal_bytes=random.choice([4 << 10, 16 << 10, 16 << 10]),
            rows_max=random.choice([64, 64, 512]),
            late_us=random.choice([200_000, 200_000, 1_000_000, 3_000_000]),
            wild_clocks=random.random() < 0.2,
            again=random.choice([0.0, 0.5]),
            replication=replication,
            moves=moves,
            limits=tuple(limits.items()),
            # What was decided and staged in rows that are given up waits for an operator.
            writers=scopes.choice([1, 2]) if scopes.random() < COMMITTING and not is_forced else 0,
            commit_us=scopes.choice([30_000, 100_000, 300_000]),
            stall=disks.choice([0.0, 0.01, 0.05, 0.3]),
            stall_us=disks.choice([10_000, 50_000, 250_000]),
            together=Random(f"together {seed}").choice([2, BATCH_ORDERS_MIN]),
            strikes=_numbered(strikes),
        )


Strikes = list[tuple[int, str, int]]


def _themed(seed: int, seconds: int, strikes: Strikes) -> tuple[str, Strikes]:
    """The theme that a seed with three replicas has instead of its strikes, at the newest level only."""
    older, forced = Random(f"older {seed}"), Random(f"forced {seed}")
    truncates = Random(f"truncates {seed}")
    if older.random() < OLDER:  # a log without witnesses, of level 0, cannot be told from an older copy of it
        return "older", _repeated(older, OLDER_THEME, seconds)
    if forced.random() < FORCED:  # a log start of level 0 names no epoch, so it is about a later history, too
        return "forced", _repeated(forced, FORCED_THEME, seconds)
    if truncates.random() < TRUNCATING:
        strikes = strikes + _repeated(truncates, TRUNCATED, seconds)
    return "", strikes


def with_forced_owners(plan: Plan) -> Plan:
    """The same seed, with three replicas on five machines, and an operator who chooses without a majority."""
    strikes = _numbered(_repeated(Random(f"forced {plan.seed}"), FORCED_THEME, plan.seconds))
    return replace(
        plan, machines=5, replication=3, moves=True, cold=False, writers=0, level=plan.newest, strikes=strikes
    )


PlanT = TypeVar("PlanT", bound=Plan)


def with_layouts(plan: PlanT) -> PlanT:
    """The same seed at the level of layout changes, with splits and merges beside its strikes."""
    random = Random(f"layouts {plan.seed}")
    share = random.choice(STRUCK_TOO)
    kept = [each for each in plan.strikes if each.kind not in NOT_MOVED + FORCING and random.random() < share]
    own = [(each.at_us, each.kind, each.dice) for each in kept]
    limits = dict(plan.limits) or _limits(random)
    limits |= {
        "repartition_adoption_timeout_ms": random.choice([0, 300, 1_000]),
        "stage_wait_ms": random.choice([0, 100]),
        "layout_timeout_ms": random.choice([2_000, 10_000]),
        "hold_timeout_ms": random.choice([500, 2_000, 5_000]),
        "resolve_keep_s": random.choice([1, 3, 1_200]),
    }
    level = random.choice([LAYOUT_LEVEL] * 6 + [LAYOUT_LEVEL - 1, 0])
    keyless = random.random() < KEYLESS
    made = replace(
        plan,
        layouts=True,
        newest=LAYOUT_LEVEL,
        level=LAYOUT_LEVEL if keyless else level,  # a name of before has no rule
        keyless=keyless,
        moves=True,
        writers=Random(f"layout writers {plan.seed}").choice([0, 0, 1, 2]),
        loss=min(plan.loss, 0.02),
        partitions=random.choice([1, 2, 4]),
        replication=random.choice([1, 3, 3]),
        heard_us=Random(f"heard {plan.seed}").choice([0, 0, 5_000, 30_000]),
        limits=tuple(limits.items()),
        strikes=_numbered(own + _repeated(random, LAYOUTS, plan.seconds, 0.8)),
    )
    forced = Random(f"forced beside {plan.seed}")
    return _with_choices(made, forced) if forced.random() < FORCED_TOO else made


def _with_choices(plan: PlanT, random: Random) -> PlanT:
    """The same seed with splits and merges on five machines, and an operator who chooses owners."""
    kinds = FORCED_THEME | FORCED_LAYOUTS
    return replace(
        plan,
        machines=5,
        replication=3,
        cold=False,
        writers=0,  # what was staged in rows that are given up waits for an operator
        keyless=False,
        level=LAYOUT_LEVEL,
        limits=tuple((dict(plan.limits) | {"resolve_keep_s": 1_200}).items()),  # nothing is pruned
        strikes=_numbered(_repeated(random, kinds, plan.seconds)),
    )


def with_stories(plan: PlanT, kinds: dict[str, tuple[int, int]]) -> PlanT:
    """The same seed at the level of layout changes, with three replicas and no strikes but these."""
    made = with_layouts(plan)
    return replace(
        made,
        machines=5,
        replication=3,
        level=LAYOUT_LEVEL,
        cold=False,
        limits=tuple((dict(made.limits) | {"resolve_keep_s": 1_200}).items()),  # nothing is pruned
        strikes=_numbered(_repeated(Random(f"stories {plan.seed}"), kinds, plan.seconds)),
    )


def with_truncates(plan: Plan) -> Plan:
    """The same seed, with three replicas of which much is given up while owners change."""
    strikes = _numbered(_repeated(Random(f"truncates {plan.seed}"), TRUNCATED, plan.seconds))
    return replace(plan, replication=3, moves=True, strikes=strikes)


def _numbered(found: list[tuple[int, str, int]]) -> tuple[Strike, ...]:
    return tuple(Strike(number, at, kind, dice) for number, (at, kind, dice) in enumerate(sorted(found)))


def with_older_logs(plan: Plan) -> Plan:
    """The same seed, with three replicas, and one machine whose rows come back older."""
    strikes = _numbered(_repeated(Random(f"older {plan.seed}"), OLDER_THEME, plan.seconds))
    return replace(plan, replication=3, moves=True, strikes=strikes)


def _kinds(random: Random, *, themed: bool) -> list[str]:
    """Which kinds this seed has: a theme's, or one or two, some, most."""
    if themed:
        return sorted({*ALWAYS, *random.choice(THEMES)})
    names = sorted(set(KINDS) - set(ALWAYS))
    share = random.choice([0.08, 0.2, 0.2, 0.4, 0.7])
    return [*ALWAYS, *(name for name in names if random.random() < share)]


def _struck(random: Random, kinds: list[str], seconds: int, *, themed: bool) -> list[tuple[int, str, int]]:
    """Each of these kinds at its times."""
    strikes: list[tuple[int, str, int]] = []
    for kind in kinds:
        low, high = KINDS[kind]
        rest = max(1.0, len(kinds) / CROWD)
        if themed:
            rest = 2.5 if kind in ALWAYS else 0.7
        mean_us = int(random.randrange(low, high) * 1_000 * rest)
        at = random.expovariate(1 / mean_us)
        while at < seconds * 1_000_000:
            strikes.append((int(at), kind, random.getrandbits(32)))
            at += random.expovariate(1 / mean_us) + 1
    return strikes


def _limits(random: Random) -> dict[str, int]:
    return {
        "reverse_hold_s": random.choice([0, 0, 1, 300]),
        "sync_bytes_per_s": random.choice([0, 0, 500_000, 2_000_000]),
        "moves_concurrent": random.choice([1, 2, 4]),
    }


def _changes(random: Random, seconds: int) -> list[tuple[int, str, int]]:
    """Some of what only replicas know; none in a fifth of the seeds, where failover is all that changes."""
    share = random.choice([0.0, 0.3, 0.5, 0.5, 0.8])
    return _repeated(random, CHANGES, seconds, share)


def _repeated(
    random: Random, kinds: dict[str, tuple[int, int]], seconds: int, share: float = 1.0
) -> list[tuple[int, str, int]]:
    """Each kind that is among those of the seed, again and again."""
    found: list[tuple[int, str, int]] = []
    for kind, (low, high) in kinds.items():
        if random.random() >= share:
            continue
        mean_us = random.randrange(low, high) * 1_000
        at = random.expovariate(1 / mean_us)
        while at < seconds * 1_000_000:
            found.append((int(at), kind, random.getrandbits(32)))
            at += random.expovariate(1 / mean_us) + 1
    return found
