//! Statements of refusals that are counted.

/// The rows whose first refusal was between two times.
pub const REFUSALS_RECENT: &str = "SELECT operation, reason, first_us, last_us, refusals \
    FROM refusal WHERE first_us > $1 AND first_us < $2 ORDER BY first_us";
/// Writes a row.
pub const REFUSALS_COUNT: &str = "INSERT INTO refusal \
    (operation, reason, first_us, last_us, refusals) VALUES ($1, $2, $3, $4, $5) \
    ON CONFLICT (operation, reason, first_us) DO UPDATE SET \
    last_us = excluded.last_us, refusals = excluded.refusals";
/// Rows of more refusals than `$2` since `$1`, newest first, of an operation or of all.
pub const REFUSALS_COUNTED: &str = "SELECT operation, reason, first_us, last_us, refusals \
    FROM refusal WHERE first_us >= $1 AND refusals > $2 AND ($3 IS NULL OR operation = $3) \
    ORDER BY first_us DESC LIMIT $4";
/// Deletes at most `$2` rows from before `$1`.
pub const REFUSALS_PRUNE: &str = "DELETE FROM refusal WHERE (operation, reason, first_us) IN \
    (SELECT operation, reason, first_us FROM refusal WHERE first_us < $1 LIMIT $2)";
