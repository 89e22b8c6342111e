use std::num::NonZeroU64;

use super::*;

fn id(epoch: u64, token: u8) -> StageId {
    StageId { scope: 5, driver: 6, epoch, writer: 0, token: [token; 16] }
}

fn read_back(stages: &Stages) -> Stages {
    let mut bytes = Vec::new();
    stages.write(true, &mut bytes);
    Stages::read(true, &mut Cursor(&bytes)).unwrap()
}

#[test]
fn a_cut_takes_publishes_back_also_after_a_restart() {
    let mut stages = Stages::default();
    stages.staged(&id(1, 1), Staged { record: 10, rows: 4, crc: 1, origin: None }, 100);
    stages.staged(&id(1, 2), Staged { record: 11, rows: 7, crc: 1, origin: None }, 100);
    let before = stages.clone();
    let list = stages.gather((5, 1), &[[1; 16]], 4, 0).unwrap().unwrap();
    stages.published(5, 1, 12, 4, &list);
    assert_eq!((stages.open(), stages.floor()), ((0, 0), Some(10)));
    let mut again = read_back(&stages);
    assert_eq!(again, stages);
    again.cut(12, 0).unwrap();
    assert_eq!(again, before, "the publish never was: both attempts are open again");
    assert_eq!(again.gather((5, 1), &[[1; 16]], 4, 0).unwrap().unwrap(), list);
}

#[test]
fn a_cut_takes_no_records_from_publishes_before_it() {
    let mut stages = Stages::default();
    for epoch in 1..=1025 {
        stages.staged(&id(epoch, 1), Staged { record: epoch * 2, rows: 1, crc: 1, origin: None }, 1);
        let list = stages.gather((5, epoch), &[[1; 16]], 1, 0).unwrap().unwrap();
        stages.published(5, epoch, epoch * 2 + 1, epoch, &list);
    }
    assert!(stages.kept.len() < 1000, "old neighbours are joined");
    stages.cut(1025 * 2 + 1, 1024).unwrap();
    stages.start_at(1023);
    assert_eq!(stages.floor(), Some(1024 * 2), "rows of the last publish that is left lie in this record");
}

#[test]
fn a_cut_that_is_deeper_than_what_is_remembered_says_so() {
    let mut stages = Stages::default();
    for epoch in 1..=80 {
        stages.staged(&id(epoch, 1), Staged { record: epoch * 2, rows: 1, crc: 1, origin: None }, 1);
        let list = stages.gather((5, epoch), &[[1; 16]], 1, 0).unwrap().unwrap();
        stages.published(5, epoch, epoch * 2 + 1, epoch, &list);
    }
    for mut known in [stages.clone(), read_back(&stages)] {
        assert!(known.cut(3, 0).unwrap_err().contains("not remembered"));
        known.cut(160, 79).unwrap();
        assert_eq!(known.gather((5, 79), &[[1; 16]], 0, 0), Ok(None), "what is below the cut stays published");
    }
    // More batches than a state record has room for: nothing of it can be taken back from there.
    let mut large = Stages::default();
    let rows = |sequence: usize| Staged { record: sequence as u64, rows: 1, crc: 1, origin: None };
    (0..=UNDO_BATCHES_MAX).for_each(|sequence| large.staged(&id(1, 1), rows(sequence), 1));
    let list = large.gather((5, 1), &[[1; 16]], UNDO_BATCHES_MAX as u64 + 1, 0).unwrap().unwrap();
    large.published(5, 1, 9000, list.len() as u64, &list);
    assert!(read_back(&large).cut(9000, 0).is_err());
    assert!(large.cut(9000, 0).is_ok());
}

fn batch(record: u64, origin: Option<(u64, u64)>) -> Staged {
    let origin = origin.map(|(version, record)| Origin { version: NonZeroU64::new(version).unwrap(), record });
    Staged { record, rows: 1, crc: 1, origin }
}

#[test]
fn a_publish_lists_rows_by_the_place_of_their_first_staging() {
    let mut stages = Stages::default();
    // Two tokens: what was staged directly, and what was staged again after two layout changes.
    stages.staged(&id(1, 1), batch(3, None), 1);
    stages.staged(&id(1, 2), batch(4, Some((3, 2))), 1);
    stages.staged(&id(1, 2), batch(5, Some((2, 9))), 1);
    stages.staged(&id(1, 1), batch(6, None), 1);
    stages.staged(&id(1, 2), batch(7, Some((2, 9))), 1);
    stages.staged(&id(1, 2), batch(8, Some((2, 1))), 1);
    let listed = |stages: &Stages| {
        let list = stages.gather((5, 1), &[[1; 16], [2; 16]], 6, 0).unwrap().unwrap();
        list.iter().map(|batch| batch.record).collect::<Vec<_>>()
    };
    assert_eq!(listed(&stages), [8, 5, 7, 4, 3, 6]);
    let mut again = read_back(&stages);
    assert_eq!((again == stages, listed(&again)), (true, [8, 5, 7, 4, 3, 6].to_vec()));
    let list = stages.gather((5, 1), &[[1; 16], [2; 16]], 6, 0).unwrap().unwrap();
    again.published(5, 1, 9, 6, &list);
    assert!(again.has_origins(), "a cut may take the publish back");
    let mut taken_back = read_back(&again);
    taken_back.cut(9, 0).unwrap();
    assert_eq!(listed(&taken_back), [8, 5, 7, 4, 3, 6]);
}

#[test]
fn a_state_record_without_origins_has_the_bytes_of_before() {
    let mut stages = Stages::default();
    stages.staged(&id(1, 1), batch(3, None), 1);
    let (mut old, mut new) = (Vec::new(), Vec::new());
    stages.write(false, &mut old);
    stages.write(true, &mut new);
    assert_eq!(new.len(), old.len() + 16);
    assert_eq!(Stages::read(false, &mut Cursor(&old)).unwrap(), stages);
    assert!(!stages.has_origins());
}

#[test]
fn a_list_has_the_records_of_its_tokens_in_pages() {
    let mut stages = Stages::default();
    for record in 1..=9 {
        let token = u8::try_from(record % 3).unwrap();
        stages.staged(&id(1, token), batch(record, None), 1);
    }
    let listed = |after, most| stages.list((5, 1), &[[2; 16], [0; 16]], after, most, u64::MAX);
    let page = |found: &[(u64, u32, usize)]| found.iter().map(|one| (one.0, one.2)).collect::<Vec<_>>();
    assert_eq!(page(&listed(0, 4).0), [(2, 0), (3, 1), (5, 0), (6, 1)]);
    assert!(listed(0, 4).1);
    assert_eq!((page(&listed(6, 4).0), listed(6, 4).1), ([(8, 0), (9, 1)].to_vec(), false));
    assert_eq!(stages.list((5, 1), &[[1; 16]], 0, 9, 7).0, [(1, 1, 0), (4, 1, 0)], "below the mark");
    assert!(stages.list((5, 2), &[[1; 16]], 0, 9, 7).0.is_empty());
}
