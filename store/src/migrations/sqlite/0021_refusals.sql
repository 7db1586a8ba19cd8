-- Equal refusals of a minute are one row. Once it is over, the row is chained to the one before and
-- never changes; it is deleted when it is old, always the oldest first. Earlier refusals stay in the
-- journal: the numbers continue after its end.
CREATE TABLE refusal (
  seq INTEGER PRIMARY KEY CHECK (seq > 0),
  operation TEXT NOT NULL,
  reason TEXT NOT NULL,
  request_id TEXT NOT NULL,
  refusals INTEGER NOT NULL CHECK (refusals > 0),
  first_us INTEGER NOT NULL,
  last_us INTEGER NOT NULL,
  prev_hash TEXT,
  hash TEXT,
  CHECK ((prev_hash IS NULL) = (hash IS NULL))
) STRICT;
CREATE INDEX refusal_open ON refusal (seq) WHERE hash IS NULL;

-- One row. Number and hash of the last row that is chained, of the last one that was deleted, and
-- the number before the first one.
CREATE TABLE refusal_head (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  seq INTEGER NOT NULL,
  hash TEXT NOT NULL,
  pruned_seq INTEGER NOT NULL,
  pruned_hash TEXT NOT NULL,
  start_seq INTEGER NOT NULL
) STRICT;
INSERT INTO refusal_head (one, seq, hash, pruned_seq, pruned_hash, start_seq)
SELECT 1, seq, '0000000000000000000000000000000000000000000000000000000000000000', seq,
  '0000000000000000000000000000000000000000000000000000000000000000', seq FROM chain_head;

CREATE TRIGGER refusal_keeps_rows BEFORE DELETE ON refusal
  WHEN OLD.seq > (SELECT pruned_seq FROM refusal_head)
BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER refusal_keeps_values BEFORE UPDATE ON refusal WHEN OLD.hash IS NOT NULL
BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;
