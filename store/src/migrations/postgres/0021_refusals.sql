-- Equal refusals of a minute are one row. Once it is over, the row is chained to the one before and
-- never changes; it is deleted when it is old, always the oldest first. Earlier refusals stay in the
-- journal: the numbers continue after its end.
CREATE TABLE refusal (
  seq BIGINT PRIMARY KEY CHECK (seq > 0),
  operation TEXT COLLATE "C" NOT NULL,
  reason TEXT COLLATE "C" NOT NULL,
  request_id TEXT NOT NULL,
  refusals BIGINT NOT NULL CHECK (refusals > 0),
  first_us BIGINT NOT NULL,
  last_us BIGINT NOT NULL,
  prev_hash TEXT COLLATE "C",
  hash TEXT COLLATE "C",
  CHECK ((prev_hash IS NULL) = (hash IS NULL))
);
CREATE INDEX refusal_open ON refusal (seq) WHERE hash IS NULL;

-- One row. Number and hash of the last row that is chained, of the last one that was deleted, and
-- the number before the first one.
CREATE TABLE refusal_head (
  one BIGINT PRIMARY KEY CHECK (one = 1),
  seq BIGINT NOT NULL,
  hash TEXT COLLATE "C" NOT NULL,
  pruned_seq BIGINT NOT NULL,
  pruned_hash TEXT COLLATE "C" NOT NULL,
  start_seq BIGINT NOT NULL
);
INSERT INTO refusal_head (one, seq, hash, pruned_seq, pruned_hash, start_seq)
SELECT 1, seq, '0000000000000000000000000000000000000000000000000000000000000000', seq,
  '0000000000000000000000000000000000000000000000000000000000000000', seq FROM chain_head;

CREATE FUNCTION refusal_is_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.seq > (SELECT pruned_seq FROM refusal_head) THEN
    RAISE EXCEPTION 'the journal is append-only';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER refusal_keeps_rows BEFORE DELETE ON refusal
  FOR EACH ROW EXECUTE FUNCTION refusal_is_pruned();
CREATE TRIGGER refusal_keeps_values BEFORE UPDATE ON refusal
  FOR EACH ROW WHEN (OLD.hash IS NOT NULL) EXECUTE FUNCTION journal_is_append_only();
CREATE TRIGGER refusal_keeps_all BEFORE TRUNCATE ON refusal
  FOR EACH STATEMENT EXECUTE FUNCTION journal_is_append_only();
