//! The store against both databases: SQLite always, PostgreSQL at `PORTCULLIS_TEST_POSTGRES`, which
//! `tests/lib/postgres.sh` provides; without that variable the tests fail.
//!
//! Reading order: `world` is one database of a test's own; then one file for each topic. A test is
//! an async function of a world; the list below runs it as `sqlite::…` and `postgres::…`. Random
//! histories are in `conformance` and `webhook`: of two processes (`pair`) whose connections are
//! cut (`wire`).

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, too"
)]

mod age;
mod appeared;
mod budgets;
mod clocks;
mod conformance;
mod content;
mod events;
mod feeds;
mod forget;
mod growth;
mod intents;
mod journal;
mod keys;
mod pair;
mod plans;
mod processes;
mod prune;
mod refusals;
mod rules;
mod search;
mod shared;
#[path = "../../filters/tests/simulation/tables.rs"]
mod tables;
mod tampering;
#[path = "../../filters/tests/simulation/toolkit.rs"]
mod toolkit;
mod transfer;
mod upgrade;
mod webhook;
mod wire;
mod world;
mod written;

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
                #[ignore = "needs PostgreSQL: run tests/run"]
                fn $test() {
                    crate::world::on_postgres(crate::$module::$test);
                }
            )*)*
        }
    };
}

on_both! {
    appeared:
        a_feed_changes_with_its_episodes
        a_removed_episode_dates_its_podcast;
    intents:
        an_intent_is_read_as_written
        a_transaction_is_stored_once_per_epoch
        an_unresolved_equal_request_is_known
        rejected_or_lost_transactions_free_their_nonce
        a_nonce_beyond_the_column_is_refused
        states_move_forward_only_and_are_journaled
        an_unknown_intent_cannot_advance
        unresolved_intents_are_sorted_oldest_first
        cooldowns_start_at_the_newest_effective_intent
        intents_are_counted_by_state
        parallel_intents_leave_no_gap
        one_of_parallel_equal_requests_is_new
        one_of_parallel_nonce_uses_is_new;
    budgets:
        a_drip_counts_until_it_is_a_day_old
        only_drips_that_may_pay_count
        fees_count_highest_then_actual
        only_fees_that_may_be_paid_count
        repeats_are_known_over_a_budget
        parallel_intents_stay_in_budget
        older_drips_count_and_older_fees_do_not;
    clocks:
        a_recipient_has_one_drip_in_its_cooldown
        a_refused_drip_binds_nothing
        what_paid_nothing_starts_no_cooldown
        one_of_parallel_drips_is_paid
        a_cooldown_counts_from_when_it_is_seen
        a_clock_of_1970_dates_nothing_anew
        a_lost_drip_that_is_dated_anew_counts_again
        budgets_count_from_when_they_are_seen
        sessions_count_from_when_they_are_seen;
    upgrade:
        intents_of_older_versions_are_kept
        an_older_store_counts_as_pruned
        a_verification_that_was_taken_away_returns;
    journal:
        a_refusal_is_journaled
        entries_come_in_pages_and_by_intent
        a_chain_longer_than_a_page_verifies
        the_database_itself_protects_the_journal
        a_reader_verifies_while_a_relay_writes
        a_reader_creates_no_tables
        tables_of_another_version_are_refused;
    tampering:
        a_changed_entry_is_found
        a_forged_hash_shows_at_the_next_entry
        a_removed_entry_is_found
        an_entry_beyond_the_end_is_found;
    events:
        an_event_waits_for_those_of_its_write
        a_receiver_that_is_back_gets_all_soon
        what_was_not_read_is_in_the_backlog;
    refusals:
        the_first_of_equal_refusals_are_journaled
        concurrent_refusals_are_all_counted
        counts_outlive_a_restart
        old_counts_are_deleted
        the_sizes_are_those_of_the_tables
        entries_are_selected_by_a_filter;
    keys:
        a_key_identifies_one_request_across_restarts
        a_linked_key_cannot_be_released
        a_key_belongs_to_one_epoch
        a_link_to_another_epoch_names_nothing
        a_key_released_during_its_link_is_dated
        older_keys_get_the_epochs_of_their_intents
        a_lost_intent_releases_what_it_held
        a_known_intent_is_linked_too
        a_request_is_about_the_intent_of_its_key_and_the_newest
        a_key_that_is_gone_is_claimed_again
        a_released_key_is_free
        a_key_names_the_intent_that_stands
        a_claim_is_released_by_its_owner_only
        one_of_parallel_claims_is_new
        old_keys_are_pruned_unless_needed
        an_identity_has_one_recipient_and_conversely
        one_of_parallel_bindings_counts
        a_binding_stays_with_an_effective_intent
        what_is_bound_elsewhere_stores_no_intent;
    processes:
        intents_survive_a_kill
        a_signer_has_one_holder_at_a_time
        a_chore_has_one_process_at_a_time
        another_chain_is_not_written_to_while_one_is_in_force
        a_closed_store_can_be_opened_again;
    transfer:
        an_import_leaves_fresh_statistics
        export_returns_what_import_took
        export_leaves_malformed_rows_out
        the_examples_of_the_readme_work
        required_members_suffice
        deleting_a_record_twice_is_fine
        an_author_s_posts_are_deleted_together
        a_file_is_imported_whole_or_not
        errors_name_the_line_and_the_member
        pages_of_foreign_origins_are_refused
        members_accept_only_valid_values
        a_podcast_keeps_its_first_guid
        constraint_violations_name_the_line
        the_newest_import_sets_the_labels
        a_snapshot_of_suggestions_never_changes
        imports_of_pages_use_up_no_ids
        many_lines_are_imported_and_exported;
    rules:
        a_podcast_has_a_category_of_apples
        members_of_a_podcast_have_their_syntax
        episodes_of_a_serial_have_numbers
        the_guid_of_an_episode_never_changes
        no_post_is_of_the_day_after_tomorrow;
    prune:
        pruning_deletes_only_what_is_not_needed
        the_store_keeps_when_it_was_pruned
        pruning_asks_the_store_for_the_time
        a_session_with_a_new_event_stays
        each_viewer_keeps_the_newest_snapshot;
    forget:
        a_forgotten_user_is_suggested_to_nobody
        forgetting_a_user_erases_every_row
        a_failed_erasure_erases_nothing;
    feeds:
        a_page_holds_the_newest_matching_posts
        pages_neither_repeat_nor_skip_during_changes
        labels_follow_their_post
        moderation_follows_labels_and_posts
        labels_at_the_same_time_are_both_stored
        a_label_never_shows_a_hidden_post
        unstorable_text_matches_nothing
        too_many_labels_are_refused;
    written:
        rows_that_no_feed_shows_are_refused
        a_podcast_says_more_of_itself
        a_stored_row_that_breaks_a_rule_can_be_taken_down;
    content:
        the_newest_own_or_common_snapshot_serves
        suggestion_pages_stay_in_their_snapshot
        followed_and_closed_accounts_are_not_suggested
        an_account_has_three_names
        a_podcast_is_read_as_written
        malformed_items_of_lists_are_left_out
        published_episodes_are_listed_newest_first
        pages_of_episodes_end_by_weight
        an_episode_is_read_as_written
        sitemap_pages_have_fixed_ids_and_gaps
        every_url_is_in_exactly_one_file
        home_splits_a_full_page_in_halves
        a_stamp_changes_with_every_url_change
        a_file_is_read_from_one_snapshot;
    age:
        sessions_are_limited_per_minute_and_at_once
        five_of_parallel_sessions_are_opened
        the_newest_event_sets_the_status
        a_repeated_event_finds_its_first_outcome
        events_of_unknown_subjects_are_not_stored
        one_of_parallel_equal_events_is_applied
        one_of_parallel_events_with_one_id_counts
        a_verification_outlives_later_attempts
        every_order_of_events_follows_the_rules;
    shared:
        a_shared_store_reads_and_writes
        tables_are_created_once
        tables_appear_all_at_once
        a_shared_store_refuses_another_version
        a_ping_reports_the_cause
        a_probe_that_writes_leaves_nothing;
    growth:
        a_thousand_refusals_take_five_kib;
    search:
        intents_are_found_by_their_attributes
        refusals_are_found_by_operation_and_in_pages;
    plans:
        every_lookup_uses_its_index
        every_content_lookup_uses_its_index
        blocked_posts_are_not_read;
}
