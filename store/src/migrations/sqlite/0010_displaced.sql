-- An intent that is in doubt is displaced: it has no nonce any more, and keeps what else it holds.
-- Stored with it: the head of the chain when it was signed, the last block that was seen to list it,
-- and the identity that it binds. Nothing of that is known of older ones. SQLite changes no CHECK,
-- so the tables are written anew; a dropped table takes its indexes and triggers with it.
CREATE TABLE journal_with_displaced (
  seq INTEGER PRIMARY KEY CHECK (seq > 0),
  at_us INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN (
    'intended', 'sent', 'accepted', 'succeeded', 'reverted', 'rejected', 'displaced', 'lost',
    'refused')),
  intent_id INTEGER,
  operation TEXT NOT NULL,
  detail TEXT NOT NULL,
  prev_hash TEXT NOT NULL,
  hash TEXT NOT NULL
) STRICT;
INSERT INTO journal_with_displaced
SELECT seq, at_us, kind, intent_id, operation, detail, prev_hash, hash FROM journal;
DROP TABLE journal;
ALTER TABLE journal_with_displaced RENAME TO journal;
CREATE INDEX journal_intent ON journal (intent_id, seq);
CREATE INDEX journal_refused ON journal (seq) WHERE kind = 'refused';
CREATE TRIGGER journal_keeps_rows BEFORE DELETE ON journal
BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_keeps_values BEFORE UPDATE ON journal
BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;

-- What refers to intents goes first, and comes back after them.
CREATE TABLE older_key (
  key TEXT, operation TEXT, digest TEXT, intent_id INTEGER, status INTEGER, body TEXT,
  created_us INTEGER, epoch TEXT
) STRICT;
INSERT INTO older_key
SELECT key, operation, digest, intent_id, status, body, created_us, epoch FROM idempotency;
DROP TABLE idempotency;

CREATE TABLE intent_with_displaced (
  id INTEGER PRIMARY KEY,
  epoch TEXT NOT NULL,
  operation TEXT NOT NULL,
  digest TEXT NOT NULL,
  subject TEXT,
  request TEXT NOT NULL,
  signer TEXT NOT NULL,
  nonce INTEGER NOT NULL CHECK (nonce >= 0),
  transaction_hash TEXT NOT NULL,
  transaction_json TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN (
    'intended', 'sent', 'accepted', 'succeeded', 'reverted', 'rejected', 'displaced', 'lost')),
  detail TEXT,
  created_us INTEGER NOT NULL,
  updated_us INTEGER NOT NULL,
  fee_gfri INTEGER NOT NULL DEFAULT 0,
  identity TEXT,
  born INTEGER,
  included_number INTEGER,
  included_fingerprint TEXT,
  CHECK ((included_number IS NULL) = (included_fingerprint IS NULL))
) STRICT;
INSERT INTO intent_with_displaced (id, epoch, operation, digest, subject, request, signer, nonce,
  transaction_hash, transaction_json, state, detail, created_us, updated_us, fee_gfri)
SELECT id, epoch, operation, digest, subject, request, signer, nonce,
  transaction_hash, transaction_json, state, detail, created_us, updated_us, fee_gfri FROM intent;
DROP TABLE intent;
ALTER TABLE intent_with_displaced RENAME TO intent;
INSERT INTO intent_count (state, intents) VALUES ('displaced', 0);

-- Whatever is unique here is an alarm: the rules are decided before a row is written.
CREATE UNIQUE INDEX intent_hash ON intent (epoch, transaction_hash)
  WHERE state NOT IN ('rejected', 'lost');
CREATE UNIQUE INDEX intent_nonce ON intent (epoch, signer, nonce)
  WHERE state NOT IN ('rejected', 'lost', 'displaced');
CREATE UNIQUE INDEX intent_digest ON intent (epoch, digest)
  WHERE state IN ('intended', 'sent', 'accepted');
CREATE INDEX intent_unresolved ON intent (epoch, signer, id)
  WHERE state IN ('intended', 'sent', 'accepted');
CREATE INDEX intent_subject ON intent (epoch, operation, subject, created_us);
CREATE INDEX intent_search_hash ON intent (transaction_hash, id);
CREATE INDEX intent_search_subject ON intent (subject, id);
CREATE INDEX intent_search_state ON intent (state, id);
CREATE INDEX intent_search_operation ON intent (operation, id);
CREATE INDEX intent_drips ON intent (epoch, created_us)
  WHERE operation = 'faucet-drip' AND state NOT IN ('rejected', 'lost', 'reverted');
CREATE INDEX intent_slot ON intent (epoch, signer, nonce, id);
CREATE INDEX intent_request ON intent (epoch, digest, id);
CREATE INDEX intent_displaced ON intent (epoch, signer, nonce, id) WHERE state = 'displaced';
-- The newest first; those without a known block are above all others.
CREATE INDEX intent_included
  ON intent (epoch, coalesce(included_number, 9223372036854775807), id)
  WHERE state IN ('succeeded', 'reverted');

CREATE TRIGGER intent_comes AFTER INSERT ON intent
BEGIN UPDATE intent_count SET intents = intents + 1 WHERE state = NEW.state; END;
CREATE TRIGGER intent_moves AFTER UPDATE OF state ON intent
BEGIN
  UPDATE intent_count SET intents = intents - 1 WHERE state = OLD.state;
  UPDATE intent_count SET intents = intents + 1 WHERE state = NEW.state;
END;
CREATE TRIGGER intent_may_cost AFTER INSERT ON intent WHEN NEW.fee_gfri > 0
BEGIN
  INSERT INTO fee_sum (epoch, minute, fee_gfri)
  VALUES (NEW.epoch, NEW.created_us / 60000000, NEW.fee_gfri)
  ON CONFLICT (epoch, minute) DO UPDATE SET fee_gfri = fee_gfri + excluded.fee_gfri;
END;
CREATE TRIGGER intent_costs AFTER UPDATE OF state, fee_gfri ON intent WHEN OLD.fee_gfri > 0
BEGIN
  UPDATE fee_sum SET fee_gfri = fee_gfri
    - CASE WHEN OLD.state IN ('rejected', 'lost') THEN 0 ELSE OLD.fee_gfri END
    + CASE WHEN NEW.state IN ('rejected', 'lost') THEN 0 ELSE NEW.fee_gfri END
  WHERE epoch = NEW.epoch AND minute = NEW.created_us / 60000000;
END;

CREATE TABLE idempotency (
  key TEXT NOT NULL,
  operation TEXT NOT NULL,
  digest TEXT NOT NULL,
  intent_id INTEGER REFERENCES intent (id),
  status INTEGER,
  body TEXT,
  created_us INTEGER NOT NULL,
  epoch TEXT NOT NULL,
  -- The owner of a claim. Older claims have none.
  claim_token TEXT,
  PRIMARY KEY (epoch, key),
  CHECK ((status IS NULL) = (body IS NULL))
) STRICT;
INSERT INTO idempotency (key, operation, digest, intent_id, status, body, created_us, epoch)
SELECT key, operation, digest, intent_id, status, body, created_us, epoch FROM older_key;
DROP TABLE older_key;
CREATE INDEX idempotency_created ON idempotency (created_us);
