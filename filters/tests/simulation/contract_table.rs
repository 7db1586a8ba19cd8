//! The cases of the contract of `Io` prove each method, and are run.

use crate::contract::{cases, shared_cases};
use std::collections::BTreeSet;

const TRAITS: &str = include_str!("../../src/txm/io.rs");

/// The cases that prove each method, in the order of the traits.
const CASES: [(&str, &[&str]); 54] = [
    (
        "call",
        &[
            "state_is_of_the_block_being_built",
            "a_call_goes_to_the_next_url",
        ],
    ),
    ("class_hash_at", &["an_undeployed_account_has_no_nonce"]),
    (
        "nonce",
        &[
            "state_is_of_the_block_being_built",
            "an_undeployed_account_has_no_nonce",
        ],
    ),
    (
        "head",
        &[
            "only_accepted_blocks_are_read",
            "what_was_shown_is_not_taken_back",
        ],
    ),
    ("anchor", &["a_chain_that_starts_over_is_another"]),
    ("estimate", &["an_estimate_has_prices_or_a_refusal"]),
    (
        "receipt",
        &[
            "a_receipt_names_its_block_once_accepted",
            "an_unknown_transaction_has_no_receipt",
        ],
    ),
    ("urls", &["a_url_far_behind_has_no_say"]),
    (
        "head_of",
        &[
            "each_url_shows_its_own_chain",
            "an_unreachable_url_proves_nothing",
        ],
    ),
    (
        "block_of",
        &[
            "only_accepted_blocks_are_read",
            "each_url_shows_its_own_chain",
        ],
    ),
    ("transaction_of", &["a_slot_is_found_in_its_block"]),
    ("nonce_of", &["a_url_names_sender_and_nonce"]),
    ("sender_of", &["a_url_names_sender_and_nonce"]),
    (
        "receipt_of",
        &[
            "each_url_shows_its_own_chain",
            "a_rolled_back_transaction_is_in_no_block",
        ],
    ),
    ("note_shown", &["what_was_shown_is_not_taken_back"]),
    ("clock_us", &["the_clock_is_that_of_the_store"]),
    ("clock_error_us", &["the_clock_is_that_of_the_store"]),
    ("is_exclusive", &["a_lone_process_is_exclusive"]),
    (
        "intend",
        &[
            "an_intent_is_durable_once_stored",
            "a_slot_has_one_intent",
            "another_chain_stores_no_intent",
            "an_unconfirmed_commit_is_unknown",
        ],
    ),
    (
        "apply",
        &[
            "changes_follow_the_states",
            "an_unconfirmed_commit_is_unknown",
        ],
    ),
    ("intent", &["an_intent_is_durable_once_stored"]),
    (
        "requested",
        &[
            "a_request_finds_its_newest_intent",
            "a_key_names_the_intent_of_its_request",
            "a_key_is_of_one_epoch",
        ],
    ),
    ("unresolved", &["intents_are_selected_by_epoch_and_signer"]),
    ("displaced", &["intents_are_selected_by_epoch_and_signer"]),
    ("of_slot", &["intents_are_selected_by_epoch_and_signer"]),
    ("included_newest", &["included_ones_come_newest_first"]),
    (
        "included_anywhere",
        &["included_ones_without_a_block_are_apart"],
    ),
    ("floor", &["included_ones_come_newest_first"]),
    ("last_of", &["a_cooldown_starts_with_what_pays"]),
    ("binding", &["an_identity_has_one_recipient"]),
    (
        "claim",
        &["a_key_is_claimed_once", "a_key_repeats_its_first_answer"],
    ),
    (
        "link",
        &[
            "a_key_names_the_intent_of_its_request",
            "a_key_is_of_one_epoch",
        ],
    ),
    ("answer", &["a_key_repeats_its_first_answer"]),
    ("release_claim", &["a_claim_is_released_by_its_token"]),
    ("pins", &["pins_and_settings_are_at_hand"]),
    ("settings", &["pins_and_settings_are_at_hand"]),
    ("now", &["time_passes_while_it_sleeps"]),
    ("sleep", &["time_passes_while_it_sleeps"]),
    ("random", &["chance_does_not_repeat"]),
    ("memory", &["memory_outlives_a_call"]),
    (
        "require",
        &[
            "a_proof_permits_writes_on_this_chain",
            "another_chain_is_known_before_it_is_written",
        ],
    ),
    (
        "epoch",
        &[
            "another_chain_is_known_before_it_is_written",
            "the_epoch_is_known_without_a_node",
        ],
    ),
    ("forget_proof", &["a_proof_permits_writes_on_this_chain"]),
    ("proven_head", &["a_proof_permits_writes_on_this_chain"]),
    (
        "lock",
        &[
            "an_account_has_one_writer",
            "a_dropped_guard_unlocks",
            "processes_exclude_each_other",
        ],
    ),
    ("check_lock", &["a_lost_session_loses_its_lock"]),
    (
        "unlock",
        &[
            "an_account_has_one_writer",
            "processes_exclude_each_other",
            "a_waiting_process_gets_its_turn",
        ],
    ),
    ("sign", &["an_estimate_is_signed_for_itself"]),
    (
        "add",
        &[
            "an_add_without_an_answer_may_be_sent",
            "without_a_url_nothing_is_sent",
            "a_transaction_is_taken_once",
        ],
    ),
    (
        "join",
        &[
            "equal_flights_share_one_write",
            "a_flight_outlives_its_first_request",
            "an_interrupted_write_is_unknown",
        ],
    ),
    ("spawn", &["spawned_work_runs_after_its_caller"]),
    ("stage", &["a_stage_returns_its_result"]),
    ("wake", &["a_wake_is_not_lost"]),
    ("note", &["notes_take_nothing_from_the_flow"]),
];

macro_rules! names {
    ($($module:ident: $($case:ident)*;)*) => { [$($(stringify!($case)),*),*] };
}

/// The methods of the traits, in order.
fn methods() -> Vec<&'static str> {
    let names = TRAITS
        .lines()
        .filter_map(|line| line.strip_prefix("    fn "));
    names
        .filter_map(|line| line.split(['(', '<']).next())
        .collect()
}

#[test]
fn every_method_has_its_cases() {
    let of_table: Vec<_> = CASES.iter().map(|(method, _)| *method).collect();
    assert_eq!(of_table, methods());
    for (method, cases) in CASES {
        assert!(!cases.is_empty(), "{method} is proved");
    }
}

#[test]
fn every_case_that_runs_proves_a_method() {
    let everywhere: [&str; _] = cases!(names);
    let run: BTreeSet<_> = everywhere.into_iter().chain(shared_cases!(names)).collect();
    let named: BTreeSet<_> = CASES
        .iter()
        .flat_map(|(_, cases)| cases.iter().copied())
        .collect();
    assert_eq!(named, run);
}
