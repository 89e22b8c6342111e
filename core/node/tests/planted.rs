//! Faults that are planted into the engine: the story of each must fail.

use ringfence_log::planted::Bug;

use crate::{
    claims, cohort_records, cohort_reserve, members, parked_orders, pushes, queue_given_up, queue_looks, queue_members,
    sketches, staging_again, support,
};

/// Each story fails when its fault is planted, and only then.
#[test]
fn each_planted_fault_is_found() {
    let stories: [(Bug, fn()); 32] = [
        (Bug::NoOrigin, staging_again::rows_that_are_staged_again_keep_their_place),
        (Bug::OriginForgotten, staging_again::origins_outlive_a_power_cut),
        (Bug::PushForgotten, pushes::one_table_is_on_its_way_and_the_newest_follows),
        (Bug::PushForgotten, pushes::a_walk_of_changes_and_acknowledgements_leaves_nobody_behind),
        (Bug::PushedToAll, pushes::connections_that_do_not_use_a_topic_get_no_frame_of_its_changes),
        (Bug::PushedAtOnce, pushes::one_table_is_on_its_way_and_the_newest_follows),
        (Bug::FirstNotCounted, pushes::what_clients_hold_is_the_oldest_table_of_any_follower),
        (Bug::GivenAsOfTheNode, pushes::a_table_is_given_as_of_an_entry_when_all_of_its_tables_are_there),
        (Bug::AlwaysUnchanged, pushes::a_table_that_is_held_is_not_sent_again),
        (Bug::AlwaysUnchanged, pushes::a_walk_of_changes_and_acknowledgements_leaves_nobody_behind),
        (Bug::SketchOfAllSlots, sketches::rows_count_in_the_buckets_of_their_slots),
        (Bug::SketchNotHalved, sketches::counts_are_halved_once_a_minute),
        (Bug::SketchCountsChecks, sketches::a_batch_that_waits_for_room_counts_once),
        (Bug::QueueForgotten, queue_members::done_ranges_and_counts_outlive_a_power_cut_and_leases_are_taken_up_again),
        (
            Bug::QueueConnectionKept,
            queue_members::a_lease_ends_by_time_or_with_its_connection_and_an_extension_keeps_it,
        ),
        (Bug::QueueBeginsUnsaid, queue_members::a_parking_alone_says_where_the_cohort_began),
        (Bug::QueueSeekUnheard, queue_members::a_seek_ends_leases_and_what_was_done_comes_again),
        (Bug::QueueSeekUnheard, queue_members::a_seek_is_heard_where_nothing_was_acknowledged),
        (Bug::QueueBeginsAbove, queue_members::a_beginning_above_the_mark_settles_no_row_that_comes_later),
        (Bug::QueueNotWoken, queue_members::a_fetch_waits_for_rows_and_rows_of_a_sealed_partition_are_read_elsewhere),
        (Bug::ParkedFateOfAny, parked_orders::an_export_ends_by_the_fate_of_its_own_scope),
        (Bug::ParkedAnsweredEarly, parked_orders::an_order_is_answered_when_its_record_is_durable),
        (Bug::QueueLooksAgain, queue_looks::a_tick_looks_once_at_each_partition_however_many_members_wait),
        (Bug::GivenUpComesAgain, queue_given_up::rows_that_were_given_up_are_settled_wherever_they_are),
        (Bug::GivenUpComesAgain, queue_given_up::rows_that_were_given_up_stay_settled_after_a_power_cut),
        (Bug::CohortsFillTail, cohort_records::acknowledgements_lie_in_no_readers_way_to_the_newest_rows),
        (Bug::KeptRowsGo, cohort_records::rows_that_are_kept_for_cohorts_outlive_retention_until_they_are_not),
        (Bug::ReserveForNoCohort, cohort_reserve::on_a_full_disk_one_position_a_second_is_taken),
        (Bug::ReserveForNoCohort, cohort_reserve::what_ends_a_sealed_partition_is_taken_whenever_it_comes),
        (Bug::ReserveWithoutPace, cohort_reserve::on_a_full_disk_one_position_a_second_is_taken),
        (Bug::ClaimForAnyScope, claims::a_claim_for_a_scope_that_is_not_the_cohorts_changes_nothing),
        (Bug::ClaimOfAnyDriver, claims::a_claim_of_a_driver_that_the_scope_does_not_have_changes_nothing),
    ];
    support::each_is_found(&stories);
    support::each_member_fault_is_found(&[(
        ringfence_node::member_faults::Bug::AlwaysBlocked,
        members::a_fetch_that_waits_in_vain_is_blocked_only_by_what_comes_before,
    )]);
}
