//! Statements of refusals.

/// All columns of rows of refusals, with the rest of the statement.
macro_rules! refusals {
    ($rest:literal) => {
        concat!(
            "SELECT seq, operation, reason, request_id, refusals, first_us, last_us, prev_hash, ",
            "hash FROM refusal ",
            $rest
        )
    };
}

/// The ends of the chain.
pub const REFUSAL_HEAD: &str =
    "SELECT seq, hash, pruned_seq, pruned_hash, start_seq FROM refusal_head";
/// The numbers of entries of the journal, and of rows of refusals.
pub const ENTRIES_COUNT: &str = "SELECT chain_head.seq AS writes, \
    coalesce((SELECT max(seq) FROM refusal), pruned_seq) - pruned_seq AS refusals \
    FROM chain_head, refusal_head";
/// Updates the end of the chain.
pub const REFUSAL_HEAD_MOVE: &str = "UPDATE refusal_head SET seq = $1, hash = $2";
/// Sets the last row that is deleted.
pub const REFUSAL_HEAD_PRUNE: &str = "UPDATE refusal_head SET pruned_seq = $1, pruned_hash = $2";
/// The rows that are not chained yet.
pub const REFUSALS_OPEN: &str = refusals!("WHERE hash IS NULL ORDER BY seq");
/// Writes a row that counts refusals.
pub const REFUSALS_COUNT: &str = "INSERT INTO refusal \
    (seq, operation, reason, request_id, refusals, first_us, last_us) \
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (seq) DO UPDATE SET \
    refusals = excluded.refusals, first_us = excluded.first_us, last_us = excluded.last_us";
/// Chains a row.
pub const REFUSALS_CLOSE: &str = "UPDATE refusal SET prev_hash = $2, hash = $3 WHERE seq = $1";
/// Chained rows from a number on.
pub const REFUSED: &str = refusals!("WHERE seq >= $1 AND hash IS NOT NULL ORDER BY seq LIMIT $2");
/// Chained rows from a number on, of refusals since `$3`, of an operation or of all.
pub const REFUSED_MATCHING: &str = refusals!(
    "WHERE seq >= $1 AND hash IS NOT NULL AND last_us >= $3 AND ($4 IS NULL OR operation = $4) \
    ORDER BY seq LIMIT $2"
);
/// Rows before a number and after `$4`, newest first, of an operation or of all, of refusals since
/// `$5`.
pub const REFUSALS: &str = refusals!(
    "WHERE seq < $1 AND ($3 IS NULL OR operation = $3) AND seq > $4 AND last_us >= $5 \
    ORDER BY seq DESC LIMIT $2"
);
/// Deletes the rows up to a number, once it is set as the last that is deleted.
pub const REFUSALS_PRUNE: &str = "DELETE FROM refusal WHERE seq <= $1";
