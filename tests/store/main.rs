//! The store against both databases: SQLite always, PostgreSQL at `PORTCULLIS_TEST_POSTGRES`, which
//! `tests/lib/postgres.sh` provides; without that variable the tests fail.
//!
//! Reading order: `world` is one database of a test's own; then one file for each topic. A test is
//! an async function of a world; the list below runs it as `sqlite::…` and `postgres::…`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, too")]

mod intents;
mod journal;
mod keys;
mod plans;
mod processes;
mod tampering;
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
    plans:
        every_look_up_uses_its_index;
}
