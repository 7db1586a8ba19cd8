-- What the relay keeps: the journal and the head of its chain, intents, idempotency keys, and the
-- faucet's bindings. Instants are microseconds since 1970 UTC; felts are 0x and the fewest
-- lower-case digits.

CREATE TABLE journal (
  seq INTEGER PRIMARY KEY CHECK (seq > 0),
  at_us INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN (
    'intended', 'sent', 'accepted', 'succeeded', 'reverted', 'rejected', 'lost', 'refused')),
  intent_id INTEGER,
  operation TEXT NOT NULL,
  detail TEXT NOT NULL,
  prev_hash TEXT NOT NULL,
  hash TEXT NOT NULL
) STRICT;
CREATE INDEX journal_intent ON journal (intent_id, seq);

CREATE TRIGGER journal_keeps_rows BEFORE DELETE ON journal
BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_keeps_values BEFORE UPDATE ON journal
BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;

-- One row. Whoever appends updates it first: that is the lock which keeps seq without gaps.
CREATE TABLE chain_head (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  seq INTEGER NOT NULL,
  hash TEXT NOT NULL
) STRICT;
INSERT INTO chain_head (one, seq, hash)
VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- The id is the seq of the entry 'intended'.
CREATE TABLE intent (
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
    'intended', 'sent', 'accepted', 'succeeded', 'reverted', 'rejected', 'lost')),
  detail TEXT,
  created_us INTEGER NOT NULL,
  updated_us INTEGER NOT NULL
) STRICT;
-- What was refused or lost may be tried again: the same signed transaction, a new intent.
CREATE UNIQUE INDEX intent_hash ON intent (epoch, transaction_hash)
  WHERE state NOT IN ('rejected', 'lost');
CREATE UNIQUE INDEX intent_nonce ON intent (epoch, signer, nonce)
  WHERE state NOT IN ('rejected', 'lost');
CREATE UNIQUE INDEX intent_digest ON intent (epoch, digest)
  WHERE state IN ('intended', 'sent', 'accepted');
CREATE INDEX intent_unresolved ON intent (epoch, signer, id)
  WHERE state IN ('intended', 'sent', 'accepted');
CREATE INDEX intent_subject ON intent (epoch, operation, subject, created_us);

-- How many intents are in each state, so that counting never reads them all.
CREATE TABLE intent_count (
  state TEXT PRIMARY KEY,
  intents INTEGER NOT NULL
) STRICT;
INSERT INTO intent_count (state, intents) VALUES ('intended', 0), ('sent', 0), ('accepted', 0),
  ('succeeded', 0), ('reverted', 0), ('rejected', 0), ('lost', 0);
CREATE TRIGGER intent_comes AFTER INSERT ON intent
BEGIN UPDATE intent_count SET intents = intents + 1 WHERE state = NEW.state; END;
CREATE TRIGGER intent_moves AFTER UPDATE OF state ON intent
BEGIN
  UPDATE intent_count SET intents = intents - 1 WHERE state = OLD.state;
  UPDATE intent_count SET intents = intents + 1 WHERE state = NEW.state;
END;

CREATE TABLE idempotency (
  key TEXT PRIMARY KEY,
  operation TEXT NOT NULL,
  digest TEXT NOT NULL,
  intent_id INTEGER REFERENCES intent (id),
  status INTEGER,
  body TEXT,
  created_us INTEGER NOT NULL,
  CHECK ((status IS NULL) = (body IS NULL))
) STRICT;
CREATE INDEX idempotency_created ON idempotency (created_us);

CREATE TABLE faucet_binding (
  epoch TEXT NOT NULL,
  identity TEXT NOT NULL,
  recipient TEXT NOT NULL,
  bound_us INTEGER NOT NULL,
  PRIMARY KEY (epoch, identity),
  UNIQUE (epoch, recipient)
) STRICT;
