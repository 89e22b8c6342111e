//! A queue at an owner with replicas: rows that an operator gave up are settled for the next owner, too.

use ringfence_log::Storage;
use ringfence_node::{Mode, Order};
use ringfence_wire::{Code, RecordHeader, RecordKind};

use crate::cluster::NODES;
use crate::support::cohorts::{ONE, STANDS};
use crate::support::{PARTITION, TOPIC};
use crate::team::Team;

/// A bit of the body of the record with the first rows flips at a site.
fn rot(team: &Team, at: usize) {
    let disk = &team.cluster.sites[at].disk;
    for (name, _) in disk.list().unwrap() {
        let content = disk.content(&name).unwrap();
        for position in (0..content.len()).step_by(64) {
            let bytes = content.get(position..position + RecordHeader::SIZE);
            let header = bytes.and_then(|bytes| RecordHeader::open(bytes.try_into().unwrap()).ok());
            let is_first = |header: &RecordHeader| header.kind == RecordKind::Rows as u8 && header.first_offset == 0;
            if let Some(header) = header.filter(is_first) {
                return disk.flip(&name, position + RecordHeader::SIZE + header.body_bytes as usize - 1, 1);
            }
        }
    }
    panic!("site {at} has no rows");
}

fn attached_at_the_owner(team: &mut Team) {
    team.cluster.calm(10);
    assert!(team.cluster.is_open, "{:?}", team.cluster.outcomes);
    team.tell_rules(team.cluster.owner);
    team.attach();
    team.idle(2_000);
}

fn settled(team: &mut Team) -> Option<u64> {
    let at = team.cluster.owner;
    team.cluster.sites[at].node.cohort_figures()[0].settled
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn rows_that_were_given_up_are_settled_at_the_next_owner() {
    let mut team = Team::new(407);
    let mut rules = team.rules.clone();
    rules.index += 1;
    rules.cohorts[0].mode = Mode::Queue;
    rules.gates[0].assignee = 0;
    team.plan(rules);
    team.publish(10);
    for at in 0..NODES {
        rot(&team, at);
    }
    team.idle(2_000);
    let id = team.fetch(ONE, 0, STANDS, 1_000);
    let found = (0..40).find_map(|_| {
        team.idle(500);
        team.reply(id)
    });
    assert_eq!(found.unwrap().0.code, Code::Quarantined as u16, "no replica has it");
    team.cluster.order(0, Order::ReleaseQuarantine { topic: TOPIC, partition: PARTITION });
    team.cluster.calm(4);
    team.cluster.open(0);
    attached_at_the_owner(&mut team);
    let id = team.fetch(ONE, 0, STANDS, 1_000);
    let (header, _) = team.answer(id);
    assert_eq!((header.code, header.first_offset, header.rows), (0, 30, 10), "{header:?}");
    team.idle(1_000);
    assert_eq!(settled(&mut team), Some(30));
    team.cluster.power_cut(0);
    assert!(team.cluster.fail_over());
    attached_at_the_owner(&mut team);
    assert_eq!(settled(&mut team), Some(30), "the next owner has it from the log");
    let id = team.fetch(ONE, 0, STANDS, 1_000);
    let (header, _) = team.answer(id);
    assert_eq!((header.code, header.first_offset, header.rows), (0, 30, 10), "{header:?}");
}
