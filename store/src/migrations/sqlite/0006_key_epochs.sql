-- An idempotency key belongs to one epoch of the chain. Keys that were answered without a transaction
-- have no known epoch: they serve no request any more, and are pruned like the others.
CREATE TABLE idempotency_of_epoch (
  key TEXT NOT NULL,
  operation TEXT NOT NULL,
  digest TEXT NOT NULL,
  intent_id INTEGER REFERENCES intent (id),
  status INTEGER,
  body TEXT,
  created_us INTEGER NOT NULL,
  epoch TEXT NOT NULL,
  PRIMARY KEY (epoch, key),
  CHECK ((status IS NULL) = (body IS NULL))
) STRICT;
INSERT INTO idempotency_of_epoch
SELECT key, operation, digest, intent_id, status, body, created_us,
  coalesce((SELECT epoch FROM intent WHERE id = intent_id), '')
FROM idempotency;
DROP TABLE idempotency;
ALTER TABLE idempotency_of_epoch RENAME TO idempotency;
CREATE INDEX idempotency_created ON idempotency (created_us);
