//! Age verification: sessions, the verifier's events, and the status of users.

/// The number of sessions that a user opened since `$2`, and the time of the first.
pub const AGE_OPENED: &str = "SELECT count(*) AS sessions, min(created_us) AS since_us \
    FROM age_session WHERE user_id = $1 AND created_us > $2";
/// The number of a user's sessions that wait for an event at `$2`, and the first expiry.
pub const AGE_OPEN: &str = "SELECT count(*) AS sessions, min(expires_us) AS until_us \
    FROM age_session WHERE user_id = $1 AND last_occurred_us IS NULL AND expires_us > $2";
/// Opens a session.
pub const AGE_SESSION_ADD: &str = "INSERT INTO age_session \
    (subject_ref, user_id, status, created_us, expires_us) VALUES ($1, $2, 'pending', $3, $4)";
/// The user of a session, which never changes.
pub const AGE_SUBJECT: &str = "SELECT user_id FROM age_session WHERE subject_ref = $1";
/// The status of a session.
pub const AGE_SESSION: &str =
    "SELECT status, last_occurred_us FROM age_session WHERE subject_ref = $1";
/// Updates a session.
pub const AGE_SESSION_MOVE: &str =
    "UPDATE age_session SET status = $2, last_occurred_us = $3 WHERE subject_ref = $1";

/// An event and its outcome.
pub const AGE_EVENT: &str =
    "SELECT digest, outcome, status_after FROM age_event WHERE event_id = $1";
/// Stores an event, once.
pub const AGE_EVENT_ADD: &str = "INSERT INTO age_event \
    (event_id, digest, subject_ref, status, age_band, verified_us, expires_us, occurred_us, \
    received_us, outcome, status_after) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
    ON CONFLICT DO NOTHING";

/// The age status of a user.
pub const AGE_USER: &str = "SELECT status, age_band, verified_us, expires_us, last_occurred_us \
    FROM age_user WHERE user_id = $1";
/// Updates the age status of a user.
pub const AGE_USER_MOVE: &str = "INSERT INTO age_user \
    (user_id, status, age_band, verified_us, expires_us, last_occurred_us) \
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (user_id) DO UPDATE SET \
    status = excluded.status, age_band = excluded.age_band, verified_us = excluded.verified_us, \
    expires_us = excluded.expires_us, last_occurred_us = excluded.last_occurred_us";
