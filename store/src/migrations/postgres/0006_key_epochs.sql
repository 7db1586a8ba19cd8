-- An idempotency key belongs to one epoch of the chain. Keys that were answered without a transaction
-- have no known epoch: they serve no request any more, and are pruned like the others.
ALTER TABLE idempotency ADD COLUMN epoch TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE idempotency SET epoch = intent.epoch FROM intent WHERE intent.id = idempotency.intent_id;
ALTER TABLE idempotency ALTER COLUMN epoch DROP DEFAULT;
ALTER TABLE idempotency DROP CONSTRAINT idempotency_pkey;
ALTER TABLE idempotency ADD PRIMARY KEY (epoch, key);
