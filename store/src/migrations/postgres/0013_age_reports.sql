-- The report behind the status of a session: a user's status is decided by all of the user's
-- sessions, since an attempt that proves nothing takes nothing from a verification.
ALTER TABLE age_session ADD COLUMN age_band TEXT;
ALTER TABLE age_session ADD COLUMN verified_us BIGINT;
ALTER TABLE age_session ADD COLUMN verified_until_us BIGINT;

-- Events are deleted after 181 days; the user's row has the report of an older one.
UPDATE age_session SET (age_band, verified_us, verified_until_us) = (
  SELECT age_band, verified_us, expires_us FROM age_event
  WHERE age_event.subject_ref = age_session.subject_ref AND age_event.status = 'verified'
    AND age_event.occurred_us = age_session.last_occurred_us AND age_event.outcome = 'applied'
  LIMIT 1)
WHERE status = 'verified';
UPDATE age_session SET (age_band, verified_us, verified_until_us) = (
  SELECT age_band, verified_us, expires_us FROM age_user
  WHERE age_user.user_id = age_session.user_id)
WHERE status = 'verified' AND verified_us IS NULL AND EXISTS (
  SELECT 1 FROM age_user WHERE age_user.user_id = age_session.user_id
    AND age_user.status = 'verified'
    AND age_user.last_occurred_us = age_session.last_occurred_us);

-- A verification that a later attempt took away is in force again, unless it has ended.
UPDATE age_user SET (status, age_band, verified_us, expires_us, last_occurred_us) = (
  SELECT status, age_band, verified_us, verified_until_us, last_occurred_us FROM age_session
  WHERE age_session.user_id = age_user.user_id AND age_session.status = 'verified'
    AND coalesce(verified_until_us, verified_us + 31536000000000) > (extract(epoch FROM now()) * 1000000)::bigint
  ORDER BY coalesce(verified_until_us, verified_us + 31536000000000) DESC LIMIT 1)
WHERE status <> 'verified' AND EXISTS (
  SELECT 1 FROM age_session
  WHERE age_session.user_id = age_user.user_id AND age_session.status = 'verified'
    AND coalesce(verified_until_us, verified_us + 31536000000000) > (extract(epoch FROM now()) * 1000000)::bigint);
