//! Gates of cohorts in the logs of engines: a layout change, starts, levels, files.

use ringfence_log::{COHORT_FORMAT, LINEAGE_FORMAT};
use ringfence_node::{COHORT_LEVEL, Finished, GatesIn, GatesOut, LAYOUT_LEVEL, Order, check};

use crate::merge::{CHILD, LEFT, Merge, NUMBER, ROOMY};
use crate::sealed::formats;
use crate::support::{Shape, TOPIC, install_topic};

const COHORT: u64 = 44 << 16;
const SESSION: u64 = 46 << 16;
/// It was sealed earlier, and LEFT is its heir.
const ANCESTOR: u64 = 11;

/// The body of an inherited record: in each partition a beginning, a hold and a position.
fn gates_of(partitions: &[u64]) -> Vec<u8> {
    let mut bytes = vec![1, 0, 1, 0];
    bytes.extend(u32::try_from(3 * partitions.len()).unwrap().to_le_bytes());
    let mut put = |what: u8, words: &[u64]| {
        bytes.extend([what, 0, u8::try_from(words.len()).unwrap(), 0, 0, 0, 0, 0]);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    for partition in partitions {
        put(3, &[*partition, COHORT, COHORT, 40, 7]);
        put(2, &[*partition, COHORT, COHORT, SESSION, 7 << 20, 3]);
        put(1, &[*partition, COHORT, COHORT, 40, 7, 7 << 20]);
    }
    bytes
}

fn gates_in(partition: u64, number: u64, source: u64, gates: &[u8]) -> Order {
    Order::GatesIn(GatesIn { topic: TOPIC, partition, number, source, gates: gates.into() })
}

fn gates_out(merge: &mut Merge, partition: u64, number: u64, list: Option<&[u64]>) -> Vec<u8> {
    let held = merge.world.ordered(Order::Hold { topic: TOPIC, partition, epoch: number });
    let Ok(Finished::Fenced { records, .. }) = held else { panic!("{held:?}") };
    let partitions = list.map(Into::into);
    let order = GatesOut { topic: TOPIC, partition, number, records, partitions };
    let Ok(Finished::Gates { gates, .. }) = merge.world.ordered(Order::GatesOut(order)) else { panic!("no gates") };
    gates
}

fn bytes_of(merge: &Merge, partition: u64) -> u64 {
    merge.world.engine.partition_list().into_iter().find(|one| one.partition == partition).unwrap().bytes
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn gates_go_on_in_the_log_of_the_heir() {
    let mut merge = Merge::at(COHORT_LEVEL, 50, ROOMY);
    let (epoch, given) = (merge.world.epoch, gates_of(&[ANCESTOR, LEFT]));
    let bytes = bytes_of(&merge, LEFT);
    merge.world.ordered(gates_in(LEFT, epoch, ANCESTOR, &given)).unwrap();
    assert_eq!(bytes_of(&merge, LEFT), bytes, "retention by bytes counts rows");
    assert_eq!(formats(&merge.world.disk).last(), Some(&COHORT_FORMAT), "an older program leaves it untouched");
    merge.open(CHILD, NUMBER);
    let (topic, partition, number) = (TOPIC, LEFT, NUMBER);
    let before_hold = GatesOut { topic, partition, number, records: 0, partitions: None };
    let Ok(Finished::Gates { gates, .. }) = merge.world.ordered(Order::GatesOut(before_hold)) else {
        panic!("no size")
    };
    assert_eq!(gates.len(), given.len(), "how large they are is asked before the HOLD");
    let told = gates_out(&mut merge, LEFT, NUMBER, None);
    assert_eq!(told, given);
    assert_eq!(gates_out(&mut merge, LEFT, NUMBER, Some(&[LEFT])), gates_of(&[LEFT]), "by the layout of children");
    for _ in 0..2 {
        merge.world.ordered(gates_in(CHILD, NUMBER, LEFT, &told)).unwrap();
    }
    let shape = Shape { level: COHORT_LEVEL, segment_bytes: 1 << 20, limits: ROOMY, ..Shape::default() };
    let (version, next_request) = (merge.version, merge.next_request);
    let mut merge = Merge { world: merge.world.crash(shape), version, next_request, sealed: vec![] };
    let hashes: Vec<_> = check(&merge.world.disk.copy()).unwrap().0.iter().filter_map(|one| one.cohorts_hash).collect();
    assert_eq!(hashes.len(), 2, "of the source and of its child");
    assert_eq!(hashes[0], hashes[1], "a repeat changes nothing");
    merge.world.ordered(install_topic(&[])).unwrap();
    merge.open(CHILD, NUMBER + 1);
    assert_eq!(gates_out(&mut merge, CHILD, NUMBER + 2, None), given);
}

#[cfg_attr(not(feature = "planted"), test)]
fn nothing_of_cohorts_is_written_below_their_level_or_if_it_is_no_record_of_gates() {
    for level in [LAYOUT_LEVEL, COHORT_LEVEL] {
        let mut merge = Merge::at(level, 51, ROOMY);
        let (epoch, given) = (merge.world.epoch, gates_of(&[LEFT]));
        let mut own = given.clone();
        own[2] = 0;
        let mut disordered = given.clone();
        disordered[8] = 1;
        let cut = given[..given.len() - 8].to_vec();
        for bytes in [own, disordered, cut, vec![2, 0, 1, 0]] {
            merge.world.ordered(gates_in(LEFT, epoch, ANCESTOR, &bytes)).unwrap_err();
        }
        let taken = merge.world.ordered(gates_in(LEFT, epoch, ANCESTOR, &given));
        assert_eq!(taken.is_ok(), level == COHORT_LEVEL, "{taken:?}");
        let newest = if level == COHORT_LEVEL { COHORT_FORMAT } else { LINEAGE_FORMAT - 1 };
        assert_eq!(formats(&merge.world.disk).last(), Some(&newest), "level {level}");
    }
}
