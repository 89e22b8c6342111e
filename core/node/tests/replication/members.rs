//! Members of cohorts at owners with replicas: leases need a quorum, and the next owner goes on where the log stands.

use ringfence_node::{CohortRules, Order};
use ringfence_wire::{ANSWER_FLAG_ELSEWHERE, Code};

use crate::support::cohorts::{ONE, OTHER, STANDS, gate_of, rule};
use crate::support::{PARTITION, TOPIC};
use crate::team::Team;

/// A sealed partition; its gate is in the log of `PARTITION`.
const PARENT: u64 = 5;
const PARENT_END: u64 = 40;

fn is_extended((header, body): &(ringfence_wire::AnswerHeader, Vec<u8>)) -> bool {
    assert_eq!((header.status, header.code), (0, 0));
    body.is_empty()
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_beat_at_an_idle_partition_waits_until_a_quorum_was_heard() {
    let mut team = Team::new(400);
    let (number, _) = team.opened(ONE);
    team.idle(8_000);
    let beat = team.beat(0, ONE, &[(PARTITION, number)]);
    assert!(team.reply(beat).is_none(), "no quorum was heard for a second");
    let second = team.beat(0, ONE, &[(PARTITION, number)]);
    assert_eq!(team.answer(second).0.code, Code::Overloaded as u16, "one beat of a connection is under way");
    let reply = team.answer(beat);
    assert!(is_extended(&reply), "{reply:?}");
    // Its session ends: the lease that the beat extended is waited for.
    let mut gone = rule(OTHER, 2);
    gone.cohorts[0].sessions = Box::from([OTHER]);
    team.plan(gone);
    let waiting = team.fetch(OTHER, 0, STANDS, 60_000);
    team.idle(9_000);
    assert!(team.reply(waiting).is_none(), "the lease lasts");
    team.idle(1_500);
    let (header, _) = team.answer(waiting);
    assert_eq!((header.code, header.sequence), (0, number + 1));
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn an_owner_that_is_cut_off_extends_no_lease() {
    let mut team = Team::new(401);
    let (number, _) = team.opened(ONE);
    team.alone(0, 1_500);
    let beat = team.beat(0, ONE, &[(PARTITION, number)]);
    team.alone(0, 1_900);
    assert!(team.reply(beat).is_none());
    team.alone(0, 200);
    let (header, body) = team.reply(beat).expect("within 2 s");
    assert_eq!((header.code, body), (0, PARTITION.to_le_bytes().to_vec()));
    // An answer that was under way for more than L says nothing of now.
    team.cluster.calm(10);
    team.alone(0, 1_500);
    let beat = team.beat(0, ONE, &[(PARTITION, number)]);
    team.alone(0, 1_500);
    while !team.cluster.is_silent() {
        team.cluster.deliver();
        for at in 1..3 {
            team.cluster.work(at);
            team.cluster.collect(at);
        }
    }
    let (header, body) = team.reply(beat).expect("the answers came");
    assert_eq!((header.code, body), (0, PARTITION.to_le_bytes().to_vec()));
}

fn with_parent(assignee: u64, generation: u64) -> CohortRules {
    let mut rules = rule(assignee, generation);
    let mut parent = gate_of(PARENT, assignee);
    parent.end = Some(PARENT_END);
    rules.gates.insert(0, parent);
    rules
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn where_a_sealed_partition_ends_is_told_once_a_quorum_was_heard() {
    let mut team = Team::new(402);
    team.plan(with_parent(ONE, 2));
    let opening = team.fetch_of(0, PARENT, ONE, 0, STANDS, 5_000);
    let (told, _) = team.answer(opening);
    let number = told.sequence;
    assert_ne!(told.flags & ANSWER_FLAG_ELSEWHERE, 0, "{told:?}");
    assert_eq!((told.first_offset, told.end_offset), (0, PARENT_END));
    // It waits there for the end of its hold, and is told again at its deadline.
    team.cluster.calm(10);
    let poll = team.fetch_of(0, PARENT, ONE, number, STANDS, 3_000);
    team.alone(0, 3_100);
    assert!(team.reply(poll).is_none(), "no quorum was heard for a second");
    let (told, _) = team.answer(poll);
    assert_eq!((told.code, told.sequence, told.end_offset), (0, number, PARENT_END));
    let poll = team.fetch_of(0, PARENT, ONE, number, STANDS, 1_500);
    team.alone(0, 4_000);
    let (told, _) = team.reply(poll).expect("within 2 s of its deadline");
    assert_eq!(told.code, Code::TooFewReplicas as u16);
}

/// `ONE` reads 30 rows and has acknowledged 20 of them: the number of its hold.
fn reading(team: &mut Team) -> u64 {
    let (number, told) = team.opened(ONE);
    assert_eq!(told.rows, 30);
    assert_eq!(acknowledged(team, number, 20), []);
    number
}

/// Codes of the lines that were not taken.
fn acknowledged(team: &mut Team, number: u64, through: u64) -> Vec<u16> {
    let at = team.cluster.owner;
    let id = team.acknowledge(at, ONE, [PARTITION, number, through, 0, 0]);
    let (header, body) = team.answer(id);
    assert_eq!((header.status, header.code), (0, 0), "{header:?}");
    body.chunks_exact(24).map(|line| u16::from_le_bytes([line[16], line[17]])).collect()
}

/// The next owner is told its rules, and members attach there.
fn taken_over(team: &mut Team) {
    team.cluster.calm(10);
    assert!(team.cluster.is_open, "{:?}", team.cluster.outcomes);
    team.tell_rules(team.cluster.owner);
    team.attach();
}

/// What a member sees of the change to the next owner: its hold stands, nothing acknowledged comes again.
fn goes_on(team: &mut Team, number: u64) {
    let at = team.cluster.owner;
    let told = team.gate(at);
    assert_eq!((told.offset, told.is_settled, told.epoch), (20, true, team.cluster.epoch));
    team.publish(10);
    let id = team.fetch(ONE, number, 30, 1_000);
    let (header, _) = team.answer(id);
    assert_eq!((header.code, header.sequence, header.first_offset, header.rows), (0, number, 30, 10));
    // Another is let in once both leases are over, and begins where the log stands.
    let mut gone = rule(OTHER, 2);
    gone.cohorts[0].sessions = Box::from([OTHER]);
    team.plan(gone);
    let waiting = team.fetch(OTHER, 0, STANDS, 60_000);
    team.idle(9_000);
    assert!(team.reply(waiting).is_none(), "the lease of the holder lasts");
    team.idle(4_000);
    let (header, _) = team.answer(waiting);
    assert_eq!((header.code, header.send, header.first_offset), (0, 20, 0), "{header:?}");
    assert!(header.sequence >= team.cluster.epoch << 20);
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn the_holder_goes_on_after_a_failover() {
    let mut team = Team::new(403);
    let number = reading(&mut team);
    team.cluster.power_cut(0);
    assert!(team.cluster.fail_over());
    taken_over(&mut team);
    goes_on(&mut team, number);
    team.cluster.check_equal();
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn the_holder_goes_on_after_a_move() {
    let mut team = Team::new(404);
    let number = reading(&mut team);
    let poll = team.fetch(ONE, number, 30, 10_000);
    let epoch = team.cluster.epoch + 1;
    team.cluster.order(0, Order::Hold { topic: TOPIC, partition: PARTITION, epoch });
    team.cluster.calm(4);
    assert_ne!(team.reply(poll).expect("at once: nothing is delivered any more").0.status, 0);
    assert_eq!(acknowledged(&mut team, number, 25), [Code::UnknownPartition as u16], "ask the next owner");
    team.cluster.open(1);
    taken_over(&mut team);
    // Who was the owner extends nothing and serves nothing.
    let beat = team.beat(0, ONE, &[(PARTITION, number)]);
    assert!(!is_extended(&team.answer(beat)));
    let late = team.fetch_of(0, PARTITION, ONE, number, 30, 0);
    assert_ne!(team.answer(late).0.status, 0);
    goes_on(&mut team, number);
    team.cluster.check_equal();
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn what_was_not_answered_may_be_cut_and_is_told_again() {
    let mut team = Team::new(405);
    let number = reading(&mut team);
    // The owner is alone: its record reaches no other disk, and the acknowledgement has no answer.
    let id = team.acknowledge(0, ONE, [PARTITION, number, 30, 0, 0]);
    team.alone(0, 100);
    assert!(team.reply(id).is_none());
    assert_eq!(team.gate(0).offset, 20, "it counts once it is on a quorum");
    team.cluster.cut(0, 1);
    team.cluster.cut(0, 2);
    team.cluster.open(1);
    taken_over(&mut team);
    assert_eq!(team.gate(1).offset, 20);
    let (header, _) = team.answer(id);
    assert_eq!(header.code, Code::TooFewReplicas as u16, "{header:?}");
    // Its log is the one that was cut; as owner it has the position of the others.
    team.cluster.open(0);
    taken_over(&mut team);
    assert_eq!(team.gate(0).offset, 20);
    assert_eq!(acknowledged(&mut team, number, 30), []);
    assert_eq!(team.gate(0).offset, 30);
    team.cluster.check_equal();
}

#[cfg_attr(not(feature = "planted"), test)]
fn replicas_that_start_again_have_the_position() {
    let mut team = Team::new(406);
    let number = reading(&mut team);
    for at in [1, 2] {
        team.cluster.power_cut(at);
        team.cluster.start(at);
        team.connect(at);
        team.cluster.calm(10);
    }
    team.cluster.power_cut(0);
    assert!(team.cluster.fail_over());
    taken_over(&mut team);
    goes_on(&mut team, number);
    team.cluster.check_equal();
}
