//! The store against both databases: SQLite always, PostgreSQL at `PORTCULLIS_TEST_POSTGRES`, which
//! `tests/lib/postgres.sh` provides; without that variable the tests fail.
//!
//! Reading order: `world` is one database of a test's own; then one file for each topic. A test is
//! an async function of a world; the list below runs it as `sqlite::…` and `postgres::…`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, too")]

mod age;
mod beside;
mod content;
mod feeds;
mod intents;
mod journal;
mod keys;
mod plans;
mod processes;
mod prune;
mod search;
mod tampering;
mod transfer;
mod world;

macro_rules! on_both {
    ($($module:ident: $($test:ident)*;)*) => {
        mod sqlite {
            $($(
                #[test]
                fn $test() {
                    crate::world::on_sqlite(crate::$module::$test);
                }
            )*)*
        }

        mod postgres {
            $($(
                #[test]
                fn $test() {
                    crate::world::on_postgres(crate::$module::$test);
                }
            )*)*
        }
    };
}

on_both! {
    intents:
        an_intent_is_kept_as_it_was_given
        a_transaction_is_intended_once_in_an_epoch_unless_nothing_came_of_it
        only_what_was_never_sent_is_lost_unsent
        an_equal_request_is_known_while_it_is_unresolved
        a_nonce_is_taken_until_its_transaction_is_rejected_or_lost
        a_nonce_that_can_not_be_stored_is_refused
        a_state_moves_forward_only_and_says_so_in_the_journal
        an_unknown_intent_does_not_move
        what_is_unresolved_comes_oldest_first
        a_cooldown_counts_from_the_newest_that_came_to_something
        intents_are_counted_by_state
        parallel_intents_leave_no_gap
        of_parallel_equal_requests_one_is_new
        of_parallel_uses_of_a_nonce_one_is_new;
    journal:
        a_refusal_is_written_down
        entries_come_in_pages_and_by_intent
        a_whole_chain_is_verified_also_beyond_a_page
        the_database_itself_keeps_the_journal_as_it_is
        a_reader_works_beside_a_relay_and_verifies_while_it_writes
        a_reader_refuses_a_database_without_tables_and_makes_none
        tables_of_another_version_are_refused;
    tampering:
        a_changed_entry_is_named
        a_forged_hash_is_found_at_the_next_entry
        a_removed_entry_is_named
        an_entry_beyond_the_end_is_named;
    keys:
        a_key_stands_for_one_request_also_after_a_restart
        a_key_leads_to_its_intent_and_can_not_be_released_then
        a_known_intent_is_linked_too
        an_intent_with_an_unclaimed_key_is_not_kept
        a_released_key_is_free
        an_abandoned_claim_is_taken_over_by_one
        of_parallel_claims_one_is_new
        old_keys_are_forgotten_when_nothing_needs_them
        an_identity_and_a_recipient_are_bound_to_each_other_only
        of_parallel_bindings_of_a_recipient_one_holds
        a_binding_is_taken_back_only_when_nothing_came_of_it;
    processes:
        what_was_intended_survives_a_kill
        a_signer_is_one_holder_s_at_a_time
        a_closed_store_can_be_opened_again;
    transfer:
        the_samples_come_out_as_they_went_in
        the_examples_of_the_tables_documentation_work
        a_record_needs_no_more_than_it_must_have
        a_record_is_deleted_by_its_key_also_when_it_is_gone
        of_a_file_all_is_imported_or_nothing
        what_is_wrong_is_told_with_its_line_and_member
        a_member_holds_what_its_readers_can_use
        a_podcast_keeps_the_guid_that_it_was_given_first
        what_the_tables_do_not_allow_is_told_with_its_line
        labels_are_those_of_the_newest_import
        a_snapshot_of_suggestions_never_changes
        a_page_keeps_its_id_and_no_id_is_used_up
        many_lines_go_through_in_pages;
    prune:
        what_is_old_is_forgotten_and_what_is_needed_stays
        a_session_that_an_event_just_came_to_is_not_forgotten
        of_many_viewers_each_keeps_the_newest_snapshot;
    feeds:
        a_page_holds_the_newest_that_the_filters_let_through
        pages_neither_repeat_nor_skip_while_posts_come_and_go
        labels_follow_their_post
        a_label_does_not_show_a_post_that_is_just_being_hidden
        what_no_row_can_hold_finds_nothing
        more_labels_than_there_are_places_are_refused;
    content:
        suggestions_come_from_the_newest_snapshot_of_the_viewer_or_of_all
        a_page_of_suggestions_is_of_the_snapshot_of_the_one_before
        nobody_is_suggested_whom_the_viewer_follows_or_whose_account_is_closed
        an_account_is_found_by_each_of_its_names
        a_podcast_is_read_as_it_was_written
        episodes_come_newest_first_when_their_time_has_come
        an_episode_is_read_as_it_was_written
        a_sitemap_has_pages_of_fixed_ids_with_gaps
        a_page_s_stamp_changes_with_all_that_its_addresses_do;
    age:
        a_user_opens_five_sessions_a_minute_and_ten_at_once
        of_sessions_that_a_user_opens_at_once_five_are_opened
        a_user_stands_as_the_newest_event_says
        an_event_counts_once_and_a_repeated_one_finds_what_came_of_it
        an_event_of_an_unknown_subject_is_not_kept
        of_parallel_equal_events_one_is_applied
        of_parallel_events_with_one_id_for_two_subjects_one_counts
        of_parallel_events_of_one_user_the_newest_stands
        events_in_every_order_do_what_the_rules_say;
    beside:
        a_second_store_reads_and_writes_beside_the_first
        beside_nobody_tables_are_made_once
        beside_tables_of_another_version_nothing_is_opened
        a_ping_tells_what_is_wrong;
    search:
        intents_are_found_by_what_they_are_about
        refusals_are_found_by_operation_and_in_pages;
    plans:
        every_look_up_uses_its_index
        every_look_up_of_content_uses_its_index;
}
