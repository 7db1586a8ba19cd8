-- An intent that is in doubt is displaced: it has no nonce any more, and keeps what else it holds.
-- Stored with it: the head of the chain when it was signed, the last block that was seen to list it,
-- and the identity that it binds. Nothing of that is known of older ones.
ALTER TABLE journal DROP CONSTRAINT journal_kind_check;
ALTER TABLE journal ADD CONSTRAINT journal_kind_check CHECK (kind IN (
  'intended', 'sent', 'accepted', 'succeeded', 'reverted', 'rejected', 'displaced', 'lost',
  'refused'));
ALTER TABLE intent DROP CONSTRAINT intent_state_check;
ALTER TABLE intent ADD CONSTRAINT intent_state_check CHECK (state IN (
  'intended', 'sent', 'accepted', 'succeeded', 'reverted', 'rejected', 'displaced', 'lost'));
ALTER TABLE intent
  ADD COLUMN identity TEXT COLLATE "C",
  ADD COLUMN born BIGINT,
  ADD COLUMN included_number BIGINT,
  ADD COLUMN included_fingerprint TEXT COLLATE "C",
  ADD CHECK ((included_number IS NULL) = (included_fingerprint IS NULL));
INSERT INTO intent_count (state, intents) VALUES ('displaced', 0);

-- These two are alarms: the rules are decided before a row is written.
DROP INDEX intent_nonce;
CREATE UNIQUE INDEX intent_nonce ON intent (epoch, signer, nonce)
  WHERE state NOT IN ('rejected', 'lost', 'displaced');
CREATE INDEX intent_slot ON intent (epoch, signer, nonce, id);
CREATE INDEX intent_request ON intent (epoch, digest, id);
CREATE INDEX intent_displaced ON intent (epoch, signer, nonce, id) WHERE state = 'displaced';
-- The newest first; those without a known block are above all others.
CREATE INDEX intent_included
  ON intent (epoch, (coalesce(included_number, 9223372036854775807)), id)
  WHERE state IN ('succeeded', 'reverted');

-- The owner of a claim. Older claims have none.
ALTER TABLE idempotency ADD COLUMN claim_token TEXT COLLATE "C";
