-- What operations cost, for budgets of a day. A fee is in gfri (10^9 fri), rounded up: the highest
-- that the transaction may cost, then what it cost by its receipt. It is 0 for a user's own
-- transaction, and for what older versions wrote.
ALTER TABLE intent ADD COLUMN fee_gfri BIGINT NOT NULL DEFAULT 0;
CREATE INDEX intent_drips ON intent (epoch, created_us)
  WHERE operation = 'faucet-drip' AND state NOT IN ('rejected', 'lost', 'reverted');

-- The fees of the intents of each minute (since 1970) that are not rejected or lost, so that a sum
-- over a day never reads them all.
CREATE TABLE fee_sum (
  epoch TEXT COLLATE "C" NOT NULL,
  minute BIGINT NOT NULL,
  fee_gfri BIGINT NOT NULL,
  PRIMARY KEY (epoch, minute)
);
CREATE FUNCTION sum_fee() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO fee_sum (epoch, minute, fee_gfri)
    VALUES (NEW.epoch, NEW.created_us / 60000000, NEW.fee_gfri)
    ON CONFLICT (epoch, minute) DO UPDATE SET fee_gfri = fee_sum.fee_gfri + excluded.fee_gfri;
  ELSE
    UPDATE fee_sum SET fee_gfri = fee_gfri
      - CASE WHEN OLD.state IN ('rejected', 'lost') THEN 0 ELSE OLD.fee_gfri END
      + CASE WHEN NEW.state IN ('rejected', 'lost') THEN 0 ELSE NEW.fee_gfri END
    WHERE epoch = NEW.epoch AND minute = NEW.created_us / 60000000;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER intent_may_cost AFTER INSERT ON intent
  FOR EACH ROW WHEN (NEW.fee_gfri > 0) EXECUTE FUNCTION sum_fee();
CREATE TRIGGER intent_costs AFTER UPDATE OF state, fee_gfri ON intent
  FOR EACH ROW WHEN (OLD.fee_gfri > 0) EXECUTE FUNCTION sum_fee();
