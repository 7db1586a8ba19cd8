//! All statements, each for both databases: SQLite takes `$1` too.
//!
//! A condition on states repeats that of its partial index word for word, as SQLite would not use
//! the index otherwise. SQLite prepares a statement again whenever a parameter is bound that the
//! statement compares with a column of such a condition, as the value may select the index: hence
//! `CAST($1 AS TEXT)` where a frequent statement compares an operation.
//!
//! Public, so that a test can check the query plans. This file has the statements of the relay and
//! of pruning, `content` those of the service endpoints, `events` those of events, `refusals` those
//! of refusals.

mod content;
mod events;
mod refusals;

pub use content::*;
pub use events::*;
pub use refusals::*;

/// Copies a SQLite file, without free pages, to an empty file.
pub const COPY: &str = "VACUUM INTO $1";

/// Locks the end of the chain until the transaction ends, and reads it.
pub const CHAIN_LOCK: &str = "UPDATE chain_head SET seq = seq RETURNING seq, hash";
/// SQLite only: changes a page, unlike [`CHAIN_LOCK`], which writes the present values. Never
/// conflicts, as no epoch is empty.
pub const TRIAL_ADD: &str = "INSERT INTO idempotency (epoch, key, operation, digest, created_us) \
    VALUES ('', 'trial', '', '', 0)";
/// SQLite only: removes the row of [`TRIAL_ADD`].
pub const TRIAL_REMOVE: &str = "DELETE FROM idempotency WHERE epoch = '' AND key = 'trial'";
/// PostgreSQL only: writes more than 64 KiB to a new file, as pages of existing tables may have
/// room on a full disk. Its rows are neither compressed nor replicated.
pub const ROOM_TAKE: &str = "CREATE UNLOGGED TABLE portcullis_room AS \
    SELECT md5(random()::text) AS filler FROM generate_series(1, 1200)";
/// PostgreSQL only: removes the table of [`ROOM_TAKE`].
pub const ROOM_FREE: &str = "DROP TABLE portcullis_room";
/// The end of the chain.
pub const CHAIN_HEAD: &str = "SELECT seq, hash FROM chain_head";
/// Updates the end of the chain.
pub const CHAIN_MOVE: &str = "UPDATE chain_head SET seq = $1, hash = $2";

/// The epoch that relays write to, and its candidate.
pub const CHAIN_EPOCH: &str = "SELECT epoch, candidate, candidate_us FROM chain_epoch";
/// Sets the epoch and its candidate.
pub const CHAIN_EPOCH_SET: &str = "INSERT INTO chain_epoch (id, epoch, candidate, candidate_us) \
    VALUES (1, $1, $2, $3) ON CONFLICT (id) \
    DO UPDATE SET epoch = $1, candidate = $2, candidate_us = $3";
/// PostgreSQL only: its clock in microseconds since 1970.
pub const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us";

/// Appends an entry.
pub const ENTRY_ADD: &str = "INSERT INTO journal \
    (seq, at_us, kind, intent_id, operation, detail, prev_hash, hash) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

/// PostgreSQL only: appends entries, whose columns are arrays, and updates the end of the chain.
pub const ENTRIES_ADD: &str = "WITH entry AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], \
    $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[]) \
    AS entry (seq, at_us, kind, intent_id, operation, detail, prev_hash, hash)), \
    added AS (INSERT INTO journal \
    (seq, at_us, kind, intent_id, operation, detail, prev_hash, hash) \
    SELECT seq, at_us, kind, intent_id, operation, detail, prev_hash, hash FROM entry) \
    UPDATE chain_head SET seq = newest.seq, hash = newest.hash \
    FROM (SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1) AS newest";

/// All columns of an entry, with the rest of the statement.
macro_rules! entry {
    ($rest:literal) => {
        concat!(
            "SELECT seq, at_us, kind, intent_id, operation, detail, prev_hash, hash FROM journal ",
            $rest
        )
    };
}

/// Entries from a sequence number on.
pub const ENTRIES: &str = entry!("WHERE seq >= $1 ORDER BY seq LIMIT $2");
/// Entries after `$1`, up to `$2`, since `$4`, of a kind and an operation or of all.
pub const ENTRIES_MATCHING: &str = entry!(
    "WHERE seq > $1 AND seq <= $2 AND at_us >= $4 AND ($5 IS NULL OR kind = $5) \
    AND ($6 IS NULL OR operation = $6) ORDER BY seq LIMIT $3"
);
/// [`ENTRIES_MATCHING`], newest first.
pub const ENTRIES_MATCHING_NEWEST: &str = entry!(
    "WHERE seq > $1 AND seq <= $2 AND at_us >= $4 AND ($5 IS NULL OR kind = $5) \
    AND ($6 IS NULL OR operation = $6) ORDER BY seq DESC LIMIT $3"
);
/// The newest entries, newest first.
pub const ENTRIES_NEWEST: &str = entry!("ORDER BY seq DESC LIMIT $1");
/// The entries of one intent.
pub const ENTRIES_OF: &str = entry!("WHERE intent_id = $1 ORDER BY seq");

/// All columns of an intent, with the rest of the statement.
macro_rules! intent {
    ($rest:literal) => {
        intent!(" ", $rest)
    };
    // with additional columns
    ($columns:literal, $rest:literal) => {
        concat!(
            "SELECT id, epoch, operation, digest, subject, request, signer, nonce, ",
            "transaction_hash, transaction_json, state, detail, created_us, updated_us, ",
            "fee_gfri, identity, born, included_number, included_fingerprint",
            $columns,
            "FROM intent WHERE ",
            $rest
        )
    };
}

/// Any intent, to see whether the table answers.
pub const INTENT_ANY: &str = "SELECT id FROM intent LIMIT 1";
/// Inserts an intent as sent.
pub const INTENT_ADD: &str = "INSERT INTO intent \
    (id, epoch, operation, digest, subject, request, signer, nonce, transaction_hash, \
    transaction_json, fee_gfri, state, created_us, updated_us, identity, born) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'sent', $12, $12, $13, $14)";
/// Changes an intent.
pub const INTENT_MOVE: &str = "UPDATE intent SET state = $2, detail = $3, updated_us = $4, \
    fee_gfri = $5, included_number = $6, included_fingerprint = $7 WHERE id = $1";
/// The date of the newest intent.
pub const INTENT_NEWEST: &str =
    "SELECT created_us AS newest_us FROM intent WHERE id = (SELECT max(id) FROM intent)";
/// Dates the newest intents anew, at `$1`: those after the last one that is not dated after `$2`.
pub const INTENTS_DATE: &str = "UPDATE intent SET created_us = $1 WHERE id > \
    coalesce((SELECT id FROM intent WHERE created_us <= $2 ORDER BY id DESC LIMIT 1), 0)";
/// Facts that a new intent may conflict with, except other intents: the epoch in force; its key;
/// the n-th newest drip, for a budget of n; the fees of the day; the intent that starts its
/// cooldown; and the date of the newest intent. A fact that is not needed is NULL. Displaced
/// intents of the slot count neither as drips nor for the cooldown.
pub const INTEND_FACTS: &str = "SELECT (SELECT epoch FROM chain_epoch) AS epoch, \
    idempotency.epoch AS key_epoch, idempotency.operation AS key_operation, \
    idempotency.digest AS key_digest, idempotency.intent_id AS key_intent, \
    (SELECT created_us FROM intent WHERE epoch = $3 AND created_us > $4 AND created_us <= $5 \
    AND operation = 'faucet-drip' AND state NOT IN ('rejected', 'lost', 'reverted') \
    AND NOT (state = 'displaced' AND signer = $7 AND nonce = $8) \
    ORDER BY created_us DESC LIMIT 1 OFFSET $6) AS drip_us, \
    (SELECT CAST(sum(fee_gfri) AS BIGINT) FROM fee_sum \
    WHERE epoch = $9 AND minute >= $10 AND minute <= $11) AS fees_gfri, \
    (SELECT id FROM intent WHERE epoch = $12 AND operation = CAST($13 AS TEXT) AND subject = $14 \
    AND created_us > $15 AND created_us <= $16 \
    AND state NOT IN ('rejected', 'lost', 'reverted') \
    AND NOT (state = 'displaced' AND signer = $7 AND nonce = $8) \
    ORDER BY created_us DESC, id DESC LIMIT 1) AS last_id, \
    (SELECT created_us FROM intent WHERE id = (SELECT max(id) FROM intent)) \
    AS newest_us \
    FROM (SELECT 1 AS one) AS here \
    LEFT JOIN idempotency ON idempotency.epoch = $1 AND idempotency.key = $2";
/// The intents that a new one may conflict with: those of its hash, its slot or its digest, and
/// those of the ids `$6` and `$7`.
pub const INTEND_INTENTS: &str = intent!(
    "id IN (SELECT id FROM intent WHERE epoch = $1 AND transaction_hash = $2 \
    AND state NOT IN ('rejected', 'lost') \
    UNION ALL SELECT id FROM intent WHERE epoch = $1 AND signer = $3 AND nonce = $4 \
    UNION ALL SELECT id FROM intent WHERE epoch = $1 AND digest = $5 \
    AND state IN ('intended', 'sent', 'accepted', 'displaced') \
    UNION ALL SELECT id FROM intent WHERE id = $6 \
    UNION ALL SELECT id FROM intent WHERE id = $7) ORDER BY id"
);
/// The intents of an intent's slot; newer ones with the digest of one of these, unless rejected or
/// lost; and open ones with the digest of the intent itself.
pub const CHANGE_INTENTS: &str = intent!(
    "id IN (SELECT slot.id FROM intent AS it JOIN intent AS slot ON slot.epoch = it.epoch \
    AND slot.signer = it.signer AND slot.nonce = it.nonce WHERE it.id = $1 \
    UNION ALL SELECT equal.id FROM intent AS it JOIN intent AS slot ON slot.epoch = it.epoch \
    AND slot.signer = it.signer AND slot.nonce = it.nonce \
    JOIN intent AS equal ON equal.epoch = slot.epoch AND equal.digest = slot.digest \
    AND equal.id > slot.id AND equal.state NOT IN ('rejected', 'lost') WHERE it.id = $1 \
    UNION ALL SELECT open.id FROM intent AS it JOIN intent AS open ON open.epoch = it.epoch \
    AND open.digest = it.digest AND open.state IN ('intended', 'sent', 'accepted') \
    WHERE it.id = $1) ORDER BY id"
);
/// An intent.
pub const INTENT: &str = intent!("id = $1");
/// The intent of a transaction, unless rejected or lost.
pub const INTENT_BY_HASH: &str =
    intent!("epoch = $1 AND transaction_hash = $2 AND state NOT IN ('rejected', 'lost')");
/// The intent that the key of a request names, and the newest of equal requests that is not
/// rejected or lost, oldest first. Each row has the id of the former as `key_intent`. A key names
/// intents of its own request and epoch only.
pub const REQUESTED: &str = intent!(
    ", (SELECT intent_id FROM idempotency WHERE epoch = $1 AND key = $3 AND operation = $4 \
    AND digest = $2) AS key_intent ",
    "id IN (SELECT intent.id FROM idempotency JOIN intent ON intent.id = idempotency.intent_id \
    AND intent.epoch = $1 AND intent.operation = CAST($4 AS TEXT) AND intent.digest = $2 \
    WHERE idempotency.epoch = $1 AND idempotency.key = $3 AND idempotency.operation = $4 \
    AND idempotency.digest = $2 UNION ALL SELECT id FROM (SELECT id FROM intent WHERE epoch = $1 \
    AND digest = $2 AND state NOT IN ('rejected', 'lost') ORDER BY id DESC LIMIT 1) AS newest) \
    ORDER BY id"
);
/// The intents of a slot.
pub const INTENTS_OF_SLOT: &str = intent!("epoch = $1 AND signer = $2 AND nonce = $3 ORDER BY id");
/// The displaced intents of an epoch below an id, newest first.
pub const DISPLACED: &str =
    intent!("epoch = $1 AND state = 'displaced' AND id < $2 ORDER BY id DESC LIMIT $3");
/// The included intents of an epoch whose block is known, newest block first.
pub const INCLUDED: &str = intent!(
    "epoch = $1 AND state IN ('succeeded', 'reverted') \
    AND coalesce(included_number, 9223372036854775807) < 9223372036854775807 \
    ORDER BY coalesce(included_number, 9223372036854775807) DESC, id DESC LIMIT $2"
);
/// The included intents of an epoch whose block is not known, below an id, newest first.
pub const INCLUDED_ANYWHERE: &str = intent!(
    "epoch = $1 AND state IN ('succeeded', 'reverted') \
    AND coalesce(included_number, 9223372036854775807) = 9223372036854775807 AND id < $2 \
    ORDER BY id DESC LIMIT $3"
);
/// The newest known block of an included intent.
pub const FLOOR: &str = "SELECT included_number FROM intent \
    WHERE epoch = $1 AND state IN ('succeeded', 'reverted') \
    AND coalesce(included_number, 9223372036854775807) < 9223372036854775807 \
    ORDER BY coalesce(included_number, 9223372036854775807) DESC LIMIT 1";
/// The unresolved intents of an epoch.
pub const UNRESOLVED: &str =
    intent!("epoch = $1 AND state IN ('intended', 'sent', 'accepted') ORDER BY id");
/// The unresolved intents of an epoch and a signer.
pub const UNRESOLVED_OF_SIGNER: &str =
    intent!("epoch = $1 AND signer = $2 AND state IN ('intended', 'sent', 'accepted') ORDER BY id");
/// The newest intent of an operation for a subject after `$4`, up to `$5`, that is not rejected,
/// lost or reverted.
pub const LAST_OF: &str = intent!(
    "epoch = $1 AND operation = CAST($2 AS TEXT) AND subject = $3 AND created_us > $4 \
    AND created_us <= $5 \
    AND state NOT IN ('rejected', 'lost', 'reverted') ORDER BY created_us DESC, id DESC LIMIT 1"
);
/// The number of intents per state.
pub const COUNT_BY_STATE: &str = "SELECT state, intents FROM intent_count WHERE intents <> 0";
/// The number of intents in doubt or lost that were never in a block, per state.
pub const COUNT_UNPLACED: &str = "SELECT state, count(*) AS intents FROM intent \
    WHERE state IN ('displaced', 'lost') AND included_number IS NULL GROUP BY state";

/// The number of an epoch's drips after `$2`, up to `$3`.
pub const DRIPS: &str = "SELECT count(*) AS drips FROM intent WHERE epoch = $1 \
    AND created_us > $2 AND created_us <= $3 AND operation = 'faucet-drip' \
    AND state NOT IN ('rejected', 'lost', 'reverted')";
/// The sum of an epoch's fees from the minute `$2` to `$3`.
pub const FEES: &str = "SELECT CAST(coalesce(sum(fee_gfri), 0) AS BIGINT) AS fees_gfri \
    FROM fee_sum WHERE epoch = $1 AND minute >= $2 AND minute <= $3";
/// The fees of an epoch by minute, from the minute `$2` to `$3`.
pub const FEES_BY_MINUTE: &str = "SELECT minute, fee_gfri FROM fee_sum \
    WHERE epoch = $1 AND minute >= $2 AND minute <= $3";

// Searches take the id to continue below, the number of rows, and the transaction hash, subject,
// state and operation to match (NULL matches all). Each uses the index of the attribute in its
// name, which must not be NULL.

/// The newest intents.
pub const SEARCH: &str = intent!(
    "id < $1 AND ($3 IS NULL OR transaction_hash = $3) AND ($4 IS NULL OR subject = $4) \
    AND ($5 IS NULL OR state = $5) AND ($6 IS NULL OR operation = $6) ORDER BY id DESC LIMIT $2"
);
/// Intents of a transaction.
pub const SEARCH_BY_HASH: &str = intent!(
    "id < $1 AND transaction_hash = $3 AND ($4 IS NULL OR subject = $4) \
    AND ($5 IS NULL OR state = $5) AND ($6 IS NULL OR operation = $6) ORDER BY id DESC LIMIT $2"
);
/// Intents about a subject.
pub const SEARCH_BY_SUBJECT: &str = intent!(
    "id < $1 AND ($3 IS NULL OR transaction_hash = $3) AND subject = $4 \
    AND ($5 IS NULL OR state = $5) AND ($6 IS NULL OR operation = $6) ORDER BY id DESC LIMIT $2"
);
/// Intents in a state.
pub const SEARCH_BY_STATE: &str = intent!(
    "id < $1 AND ($3 IS NULL OR transaction_hash = $3) AND ($4 IS NULL OR subject = $4) \
    AND state = $5 AND ($6 IS NULL OR operation = $6) ORDER BY id DESC LIMIT $2"
);
/// Intents of an operation.
pub const SEARCH_BY_OPERATION: &str = intent!(
    "id < $1 AND ($3 IS NULL OR transaction_hash = $3) AND ($4 IS NULL OR subject = $4) \
    AND ($5 IS NULL OR state = $5) AND operation = $6 ORDER BY id DESC LIMIT $2"
);
/// Refusals before an entry, newest first, of an operation or of all.
pub const REFUSALS: &str = entry!(
    "WHERE kind = 'refused' AND seq < $1 AND ($3 IS NULL OR operation = $3) \
    ORDER BY seq DESC LIMIT $2"
);

/// Binds an identity and a recipient.
pub const BIND: &str =
    "INSERT INTO faucet_binding (epoch, identity, recipient, bound_us) VALUES ($1, $2, $3, $4)";
/// The bindings of an identity and of a recipient, and whether a drip of another slot holds them;
/// then the pairs of such drips in doubt that have no binding.
pub const BOUND: &str = "SELECT identity, recipient, CAST(1 AS BIGINT) AS is_in_force, \
    CAST(CASE WHEN EXISTS (SELECT 1 FROM intent \
    WHERE intent.epoch = $1 AND intent.operation = 'faucet-drip' \
    AND intent.subject = faucet_binding.recipient \
    AND (intent.identity IS NULL OR intent.identity = faucet_binding.identity) \
    AND intent.state NOT IN ('rejected', 'lost') \
    AND NOT (intent.signer = $4 AND intent.nonce = $5)) THEN 1 ELSE 0 END AS BIGINT) AS is_held \
    FROM faucet_binding WHERE epoch = $1 AND (identity = $2 OR recipient = $3) \
    UNION ALL \
    SELECT DISTINCT identity, subject, CAST(0 AS BIGINT), CAST(1 AS BIGINT) FROM intent \
    WHERE epoch = $1 AND state = 'displaced' AND operation = 'faucet-drip' \
    AND identity IS NOT NULL AND (identity = $2 OR subject = $3) \
    AND NOT (signer = $4 AND nonce = $5) \
    AND NOT EXISTS (SELECT 1 FROM faucet_binding AS bound WHERE bound.epoch = $1 \
    AND bound.identity = intent.identity AND bound.recipient = intent.subject)";
/// The bindings of an identity and of a recipient.
pub const PAIRS: &str = "SELECT identity, recipient FROM faucet_binding WHERE epoch = $1 \
    AND (identity = $2 OR recipient = $3)";
/// Removes a binding.
pub const UNBIND: &str =
    "DELETE FROM faucet_binding WHERE epoch = $1 AND identity = $2 AND recipient = $3";

// Statements of keys that are alone in their transaction take no lock, so they check their
// conditions themselves: of two concurrent ones, one changes the row.

/// Claims a key, unless it is claimed.
pub const KEY_CLAIM: &str = "INSERT INTO idempotency \
    (epoch, key, operation, digest, created_us, claim_token) VALUES ($1, $2, $3, $4, $5, $6) \
    ON CONFLICT (epoch, key) DO NOTHING";
/// A claimed key.
pub const KEY: &str = "SELECT epoch, operation, digest, claim_token, intent_id, status, body \
    FROM idempotency WHERE epoch = $1 AND key = $2";
/// Links a key to an intent, without an answer; claims the key if it is gone. Leaves a claim that
/// was made for another request meanwhile.
pub const KEY_LINK: &str = "INSERT INTO idempotency \
    (epoch, key, operation, digest, created_us, intent_id) VALUES ($1, $2, $3, $4, $5, $6) \
    ON CONFLICT (epoch, key) DO UPDATE SET intent_id = excluded.intent_id, status = NULL, \
    body = NULL WHERE idempotency.operation = excluded.operation \
    AND idempotency.digest = excluded.digest";
/// Stores the response of a key that names an intent of its epoch, once.
pub const KEY_ANSWER: &str = "UPDATE idempotency SET status = $6, body = $7 \
    WHERE epoch = $1 AND key = $2 AND operation = $3 AND digest = $4 AND intent_id = $5 \
    AND status IS NULL AND EXISTS (SELECT 1 FROM intent WHERE intent.id = $5 \
    AND intent.epoch = $1)";
/// Withdraws the responses that report an intent.
pub const KEY_WITHDRAW: &str =
    "UPDATE idempotency SET status = NULL, body = NULL WHERE intent_id = $1";
/// Releases a claim of this owner that has neither intent nor response.
pub const KEY_RELEASE: &str = "DELETE FROM idempotency \
    WHERE epoch = $1 AND key = $2 AND claim_token = $3 AND intent_id IS NULL AND status IS NULL";
/// Deletes old keys that are answered or have no intent of their epoch.
pub const KEY_PRUNE: &str = "DELETE FROM idempotency \
    WHERE created_us < $1 AND (status IS NOT NULL OR NOT EXISTS (SELECT 1 FROM intent \
    WHERE intent.id = idempotency.intent_id AND intent.epoch = idempotency.epoch))";

/// When old rows were last deleted.
pub const PRUNED: &str = "SELECT pruned_us FROM pruning";
/// Sets when old rows were last deleted.
pub const PRUNED_SET: &str = "UPDATE pruning SET pruned_us = $1";

/// PostgreSQL only: locks a number, waiting up to the session's `lock_timeout`.
pub const LOCK: &str = "SELECT pg_advisory_lock($1)";
/// PostgreSQL only: locks a number if it is free.
pub const LOCK_IF_FREE: &str = "SELECT pg_try_advisory_lock($1) AS is_held";
/// PostgreSQL only: releases the lock of a number.
pub const UNLOCK: &str = "SELECT pg_advisory_unlock($1)";
/// PostgreSQL only: sets how long the session waits for a lock.
pub const LOCK_WAIT: &str = "SELECT set_config('lock_timeout', $1, false)";
/// PostgreSQL only: sets how long the session may idle, in milliseconds. Version 13 has no such
/// limit.
pub const SESSION_IDLE: &str = "SELECT set_config(name, $1, false) FROM pg_settings \
    WHERE name = 'idle_session_timeout'";
/// PostgreSQL only: the process that serves this session.
pub const SESSION: &str = "SELECT pg_backend_pid() AS session";
/// PostgreSQL only: whether a transaction of this session may not write.
pub const READ_ONLY: &str =
    "SELECT current_setting('transaction_read_only') = 'on' AS is_read_only";
/// PostgreSQL only: the standbys of this server. Every user may count them, but not see more.
pub const TOPOLOGY: &str = "SELECT pg_is_in_recovery() AS is_standby, \
    (SELECT count(*) FROM pg_stat_replication) AS standbys, \
    current_setting('synchronous_standby_names') <> '' AS is_synchronous";
/// PostgreSQL only: identifies the database, and the position of its log.
pub const PRIMARY_POSITION: &str = "SELECT \
    system_identifier::text || '/' || current_database() AS database, \
    pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS bytes FROM pg_control_system()";
/// PostgreSQL only: identifies the database of a replica, and the position up to which it has
/// replayed the log; NULL for a server that follows no other.
pub const REPLICA_POSITION: &str = "SELECT \
    system_identifier::text || '/' || current_database() AS database, \
    CASE WHEN pg_is_in_recovery() THEN \
    pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint END AS bytes \
    FROM pg_control_system()";
/// PostgreSQL only: takes the lock of this name until the transaction ends. Locks of two numbers
/// never collide with the locks of sessions, which have one number.
pub const NAME_LOCK: &str = "SELECT pg_advisory_xact_lock(1, hashtext($1))";
/// PostgreSQL only: begins a transaction that sees one state of the tables.
pub const SNAPSHOT_BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// PostgreSQL only: sets how long this transaction may idle, in milliseconds.
pub const SNAPSHOT_IDLE: &str =
    "SELECT set_config('idle_in_transaction_session_timeout', $1, true)";
/// PostgreSQL only: the size of the database.
pub const BYTES: &str = "SELECT pg_database_size(current_database()) AS bytes";
/// The version of the tables.
pub const VERSION: &str = "SELECT max(version) AS version FROM _sqlx_migrations";

/// SQLite only: moves the log into the file and empties it, unless a reader needs it.
pub const LOG_EMPTY: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
/// Erases the events of a user's sessions.
pub const FORGET_EVENTS: &str = "DELETE FROM age_event WHERE subject_ref IN \
    (SELECT subject_ref FROM age_session WHERE user_id = $1)";
/// Erases the sessions of a user.
pub const FORGET_SESSIONS: &str = "DELETE FROM age_session WHERE user_id = $1";
/// Erases the age status of a user.
pub const FORGET_STATUS: &str = "DELETE FROM age_user WHERE user_id = $1";
/// Erases whom an account follows, and its followers.
pub const FORGET_FOLLOWS: &str = "DELETE FROM follow WHERE did = $1 OR subject_did = $1";
/// Erases the suggestions to an account, and of it to others.
pub const FORGET_SUGGESTIONS: &str =
    "DELETE FROM suggestion WHERE viewer_did = $1 OR actor_did = $1";

/// Deletes at most `$2` age events that were received before `$1`.
pub const AGE_EVENTS_PRUNE: &str = "DELETE FROM age_event WHERE event_id IN \
    (SELECT event_id FROM age_event WHERE received_us < $1 ORDER BY received_us LIMIT $2)";
/// Deletes at most `$2` expired age sessions without an event. The outer statement repeats the
/// condition, as PostgreSQL checks only that one again after it waits for a row.
pub const AGE_SESSIONS_PRUNE: &str = "DELETE FROM age_session \
    WHERE last_occurred_us IS NULL AND expires_us < $1 AND subject_ref IN \
    (SELECT subject_ref FROM age_session WHERE last_occurred_us IS NULL AND expires_us < $1 \
    ORDER BY expires_us LIMIT $2)";
/// Deletes at most `$2` feed items from before `$1`.
pub const FEED_ITEMS_PRUNE: &str = "DELETE FROM feed_item WHERE (feed, post_uri) IN \
    (SELECT feed, post_uri FROM feed_item WHERE sort_us < $1 LIMIT $2)";
/// The viewer of the suggestion that is `$2` rows after the last one of the viewer `$1`.
pub const SUGGESTION_VIEWER: &str =
    "SELECT viewer_did FROM suggestion WHERE viewer_did > $1 ORDER BY viewer_did LIMIT 1 OFFSET $2";
/// Deletes old snapshots of a range of viewers, except the newest of each.
pub const SUGGESTIONS_PRUNE: &str = "DELETE FROM suggestion \
    WHERE viewer_did > $1 AND viewer_did <= $2 AND built_us < $3 AND snapshot_id < \
    (SELECT max(n.snapshot_id) FROM suggestion n WHERE n.viewer_did = suggestion.viewer_did)";
