-- What the relay keeps: the journal and the head of its chain, intents, idempotency keys, and the
-- faucet's bindings. Instants are microseconds since 1970 UTC; felts are 0x and the fewest
-- lower-case digits.

CREATE TABLE journal (
  seq BIGINT PRIMARY KEY CHECK (seq > 0),
  at_us BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL CHECK (kind IN (
    'intended', 'sent', 'accepted', 'succeeded', 'reverted', 'rejected', 'lost', 'refused')),
  intent_id BIGINT,
  operation TEXT COLLATE "C" NOT NULL,
  detail TEXT NOT NULL,
  prev_hash TEXT COLLATE "C" NOT NULL,
  hash TEXT COLLATE "C" NOT NULL
);
CREATE INDEX journal_intent ON journal (intent_id, seq);

CREATE FUNCTION journal_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$;
CREATE TRIGGER journal_keeps_rows BEFORE UPDATE OR DELETE ON journal
  FOR EACH ROW EXECUTE FUNCTION journal_is_append_only();
CREATE TRIGGER journal_keeps_all BEFORE TRUNCATE ON journal
  FOR EACH STATEMENT EXECUTE FUNCTION journal_is_append_only();

-- One row. Whoever appends updates it first: that is the lock which keeps seq without gaps.
CREATE TABLE chain_head (
  one BIGINT PRIMARY KEY CHECK (one = 1),
  seq BIGINT NOT NULL,
  hash TEXT COLLATE "C" NOT NULL
);
INSERT INTO chain_head (one, seq, hash)
VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- The id is the seq of the entry 'intended'.
CREATE TABLE intent (
  id BIGINT PRIMARY KEY,
  epoch TEXT COLLATE "C" NOT NULL,
  operation TEXT COLLATE "C" NOT NULL,
  digest TEXT COLLATE "C" NOT NULL,
  subject TEXT COLLATE "C",
  request TEXT NOT NULL,
  signer TEXT COLLATE "C" NOT NULL,
  nonce BIGINT NOT NULL CHECK (nonce >= 0),
  transaction_hash TEXT COLLATE "C" NOT NULL,
  transaction_json TEXT NOT NULL,
  state TEXT COLLATE "C" NOT NULL CHECK (state IN (
    'intended', 'sent', 'accepted', 'succeeded', 'reverted', 'rejected', 'lost')),
  detail TEXT,
  created_us BIGINT NOT NULL,
  updated_us BIGINT NOT NULL
);
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
  state TEXT COLLATE "C" PRIMARY KEY,
  intents BIGINT NOT NULL
);
INSERT INTO intent_count (state, intents) VALUES ('intended', 0), ('sent', 0), ('accepted', 0),
  ('succeeded', 0), ('reverted', 0), ('rejected', 0), ('lost', 0);
CREATE FUNCTION count_intent() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  IF TG_OP = 'UPDATE' THEN
    UPDATE intent_count SET intents = intents - 1 WHERE state = OLD.state;
  END IF;
  UPDATE intent_count SET intents = intents + 1 WHERE state = NEW.state;
  RETURN NULL;
END $$;
CREATE TRIGGER intent_comes_or_moves AFTER INSERT OR UPDATE OF state ON intent
  FOR EACH ROW EXECUTE FUNCTION count_intent();

CREATE TABLE idempotency (
  key TEXT COLLATE "C" PRIMARY KEY,
  operation TEXT COLLATE "C" NOT NULL,
  digest TEXT COLLATE "C" NOT NULL,
  intent_id BIGINT REFERENCES intent (id),
  status BIGINT,
  body TEXT,
  created_us BIGINT NOT NULL,
  CHECK ((status IS NULL) = (body IS NULL))
);
CREATE INDEX idempotency_created ON idempotency (created_us);

CREATE TABLE faucet_binding (
  epoch TEXT COLLATE "C" NOT NULL,
  identity TEXT COLLATE "C" NOT NULL,
  recipient TEXT COLLATE "C" NOT NULL,
  bound_us BIGINT NOT NULL,
  PRIMARY KEY (epoch, identity),
  UNIQUE (epoch, recipient)
);
