//! Faults that are planted into the engine: the story of each must fail.

use ringfence_log::planted::Bug;

use super::{
    anchored_cohorts, gates, inherits, inherits_replicas, members, queue_given_up, sealed, sealed_replicas as replicas,
    support,
};

/// Each story fails when its fault is planted, and only then.
#[test]
fn each_planted_fault_is_found() {
    let stories: [(Bug, fn()); 30] = [
        (Bug::FollowerAckEarly, super::nothing_is_acknowledged_or_shown_before_a_second_disk_has_it),
        (Bug::GapCounts, super::a_longer_log_that_went_another_way_counts_for_nothing),
        (
            Bug::StartForgotten,
            super::starts::a_replica_that_was_down_during_a_truncate_carries_it_out_as_its_mark_moves,
        ),
        (Bug::StartOfAnyEpoch, super::starts::a_start_of_lost_rows_spares_those_that_got_their_offsets_later),
        (Bug::CutKeepsProducers, super::producers::a_truncated_batch_is_no_resume_point),
        (Bug::SealedIsOpened, sealed::nothing_is_appended_to_open_a_sealed_partition_whoever_owns_it),
        (
            Bug::SealedByLength,
            replicas::a_log_of_the_right_length_with_other_rows_is_not_served_and_is_cut_as_a_follower,
        ),
        (Bug::SealCutsSilently, sealed::a_log_that_goes_on_after_its_seal_is_quarantined),
        (Bug::SealInMemory, sealed::a_seal_is_told_when_it_is_on_disk_and_outlives_a_power_cut),
        (Bug::ChildIsReadable, sealed::a_child_is_not_there_before_the_commit),
        (Bug::StoredIsLast, sealed::a_sealed_partition_tells_what_is_stored_and_takes_nothing),
        (Bug::VersionBeforeSeal, sealed::a_sealed_partition_tells_what_is_stored_and_takes_nothing),
        (Bug::EndedEarly, sealed::readers_are_told_where_a_sealed_partition_ends),
        (Bug::EndOfAnyReader, sealed::a_reader_that_knows_of_no_lineage_is_refused_where_it_would_pass_rows_over),
        (Bug::StagedBelowMark, sealed::what_is_staged_at_the_end_of_a_sealed_partition_is_listed_and_read),
        (Bug::NoInheritance, inherits::a_child_resumes_each_slot_where_its_source_ended),
        (Bug::SegmentsAsMax, inherits::a_child_resumes_each_slot_where_its_source_ended),
        (Bug::GreaterEpochReplaces, inherits::a_child_resumes_each_slot_where_its_source_ended),
        (Bug::RestLeftOut, inherits::a_child_resumes_each_slot_where_its_source_ended),
        (Bug::PageWithoutForgotten, inherits::what_a_source_forgot_is_told_by_its_child),
        (Bug::OwnerOnlyInherits, inherits_replicas::replicas_of_a_child_inherit_with_it),
        (Bug::CutKeepsPages, inherits_replicas::a_last_page_that_was_truncated_is_missing),
        (Bug::GatesBehindLastPage, inherits::the_gates_of_a_source_come_before_its_last_page),
        (Bug::ForcedAdmitsAtOnce, inherits::an_owner_that_lacks_a_source_inherits_before_it_takes_rows),
        (Bug::HeirForgetsGates, gates::gates_go_on_in_the_log_of_the_heir),
        (Bug::CutKeepsNewest, members::what_was_not_answered_may_be_cut_and_is_told_again),
        (Bug::KnownAppliedAgain, anchored_cohorts::a_position_that_no_log_has_does_not_count_where_a_copy_was_not_over),
        (
            Bug::KnownAppliedAtStart,
            anchored_cohorts::a_position_that_no_log_has_does_not_count_where_a_copy_was_not_over,
        ),
        (Bug::GivenUpComesAgain, queue_given_up::rows_that_were_given_up_are_settled_at_the_next_owner),
        (Bug::PrunedIsNew, inherits::what_a_pruned_source_had_counts_as_forgotten),
    ];
    support::each_is_found(&stories);
    members_faults();
}

fn members_faults() {
    use ringfence_node::member_faults::Bug;

    support::each_member_fault_is_found(&[
        (Bug::UnheardBeatExtends, members::an_owner_that_is_cut_off_extends_no_lease),
        (Bug::BeatDoesNotWait, members::a_beat_at_an_idle_partition_waits_until_a_quorum_was_heard),
        (Bug::LateAnswerCounts, members::an_owner_that_is_cut_off_extends_no_lease),
        (Bug::HeldDelivers, members::the_holder_goes_on_after_a_move),
        (Bug::UnheardEndIsTold, members::where_a_sealed_partition_ends_is_told_once_a_quorum_was_heard),
    ]);
}
