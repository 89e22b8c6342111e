//! The wall clock may jump: records carry it, nothing waits for it.

use crate::support::{Shape, World, body_of};
use ringfence_log::Storage;
use ringfence_log::faulty::Faults;
use ringfence_wire::Code;

#[test]
fn a_full_disk_is_asked_again_within_seconds_although_the_clock_went_back_a_day() {
    let mut world = World::new(7, Shape { segment_bytes: 1 << 20, ..Shape::default() });
    world.now.unix_ms += 1_000_000_000;
    let used = world.disk.list().unwrap().iter().map(|(_, bytes)| bytes).sum();
    world.disk.set_faults(Faults { capacity_bytes: Some(used), ..Faults::default() });
    let body = body_of(0, 8_000);
    let mut sequence = 0;
    let refused = loop {
        let header = world.batch(3, sequence, 8_000, &body);
        let reply = world.ask(&header, &body);
        if reply.header.status != 0 {
            break reply;
        }
        sequence += 1;
        assert!(sequence < 100, "the disk never was full");
    };
    assert_eq!(refused.header.code, Code::DiskFull as u16);
    world.now.unix_ms -= 86_400_000;
    world.disk.set_faults(Faults::default());
    for _ in 0..3 {
        world.pass(1_100);
    }
    let header = world.batch(3, sequence, 8_000, &body);
    let reply = world.ask(&header, &body);
    assert_eq!((reply.header.status, reply.header.code), (0, 0), "space is back: {reply:?}");
}
