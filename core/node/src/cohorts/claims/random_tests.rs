//! Random runs of the world of claims, each step checked; and each planted fault.

use super::world_tests::World;

const STEPS: u64 = 600;
/// Steps in which a member that is left alone with a hung one settles all rows.
const CALM_STEPS: u64 = 20_000;

pub fn run(seed: u64) -> Result<World, String> {
    let mut world = World::new(seed);
    for at in 0..STEPS {
        world.step().map_err(|wrong| format!("seed {seed}, step {at}: {wrong}"))?;
    }
    world.calm();
    for at in 0..CALM_STEPS {
        if world.is_through() {
            return Ok(world);
        }
        world.step().map_err(|wrong| format!("seed {seed}, calm step {at}: {wrong}"))?;
    }
    Err(format!("seed {seed}: rows are not settled in the end"))
}

#[test]
fn random_runs_keep_every_rule() {
    let (mut decided, mut forced, mut opened) = (0, 0, 0);
    for seed in 0..300 {
        let world = run(seed).unwrap();
        decided += world.decided;
        forced += world.forced;
        opened += world.opened;
    }
    println!("{decided} decided, {forced} forced ends, {opened} owner changes");
    assert!(decided > 1_000 && forced > 50 && opened > 300, "{decided} {forced} {opened}: the runs show too little");
}

#[cfg(feature = "planted")]
#[test]
fn each_planted_fault_is_found() {
    use super::claim_tests::STORIES;
    use super::planted::{BUGS, plant};
    let mut missed = Vec::new();
    for &(name, bug) in BUGS {
        plant(Some(bug));
        let is_told = STORIES.iter().any(|story| std::panic::catch_unwind(story).is_err());
        let by_runs = (0..600).find(|seed| run(*seed).is_err());
        println!("{name}: by a story {is_told}, by the run of seed {by_runs:?}");
        let is_found = is_told || by_runs.is_some();
        plant(None);
        if !is_found {
            missed.push(name);
        }
    }
    assert_eq!(missed, [""; 0]);
}
