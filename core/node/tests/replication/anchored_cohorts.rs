//! A replica that began with its owner's table, because retention has removed what it lacks: the table tells of records
//! that it gets only later, or never.

use ringfence_node::Order;
use ringfence_wire::Code;

use crate::support::cohorts::{ONE, OTHER, rule};
use crate::support::{PARTITION, TOPIC};
use crate::team::Team;

/// 64 KB: a copy takes several messages.
const ROWS: u32 = 4_000;

fn acknowledged(team: &mut Team, number: u64, through: u64) {
    let id = team.acknowledge(0, ONE, [PARTITION, number, through, 0, 0]);
    let (header, body) = team.answer(id);
    assert_eq!((header.status, header.code, body.len()), (0, 0, 0), "{header:?}");
}

fn records(team: &Team, at: usize) -> u64 {
    team.cluster.status(at).map_or(0, |told| told.records)
}

/// Everything below this offset is acknowledged and given up at the nodes that are up; the third one has none of it.
fn retained(team: &mut Team) -> u64 {
    let (number, _) = team.opened(ONE);
    team.cluster.power_cut(2);
    for _ in 0..10 {
        team.publish(ROWS);
    }
    let end = team.cluster.status(0).unwrap().end_offset;
    acknowledged(team, number, end);
    for at in 0..2 {
        let order = Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset: end, epoch: 0 };
        team.cluster.order(at, order);
    }
    team.cluster.calm(20);
    end
}

/// The third node gets the table with the position, and of the records fewer than it tells of.
fn copied_in_part(team: &mut Team, at_least: u64) {
    let of_owner = records(team, 0);
    team.cluster.start(2);
    team.connect(2);
    for _ in 0..400 {
        team.cluster.work(0);
        team.cluster.work(2);
        team.cluster.deliver();
        team.cluster.pass(5);
        if records(team, 2) >= at_least && team.cluster.status(2).unwrap().start_offset > 0 {
            break;
        }
    }
    team.cluster.work(2);
    let copied = records(team, 2);
    assert!((at_least..of_owner).contains(&copied), "{copied} records of {at_least} to {of_owner}");
}

fn opened_at(team: &mut Team, at: usize) -> u64 {
    team.cluster.open(at);
    team.cluster.calm(60);
    assert!(team.cluster.is_open, "{:?}", team.cluster.outcomes);
    team.tell_rules(at);
    team.attach();
    team.gate(at).offset
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_position_that_no_log_has_does_not_count_where_a_copy_was_not_over() {
    for is_restarted in [false, true] {
        let mut team = Team::new(408);
        let settled = retained(&mut team);
        // What both have: the hold of another member, and rows.
        team.publish(ROWS);
        team.plan(rule(OTHER, 2));
        let (number, _) = team.opened(OTHER);
        for _ in 0..4 {
            team.publish(ROWS);
        }
        let (common, through) = (records(&team, 1), team.cluster.status(0).unwrap().end_offset);
        team.cluster.power_cut(1);
        // What the owner has alone: a position.
        let id = team.acknowledge(0, OTHER, [PARTITION, number, through, 0, 0]);
        team.alone(0, 40);
        assert!(team.reply(id).is_none(), "no other disk has it");
        copied_in_part(&mut team, common);
        team.cluster.power_cut(0);
        if is_restarted {
            team.cluster.power_cut(2);
            team.cluster.start(2);
            team.connect(2);
        }
        team.cluster.start(1);
        team.connect(1);
        assert_eq!(opened_at(&mut team, 2), settled, "no owner has written more (FO5)");
        assert_eq!(opened_at(&mut team, 1), settled, "no position goes back (CG3)");
        assert!(team.reply(id).is_none_or(|(header, _)| header.code == Code::TooFewReplicas as u16));
        team.cluster.calm(20);
        let ends = [1, 2].map(|at| team.cluster.status(at).map(|told| (told.records, told.chain)));
        assert_eq!(ends[0], ends[1]);
    }
}
