-- A row that a wrong clock dated ahead of the time is dated anew when it is first seen, and its fee
-- moves to the minute of its new date. A rejected or lost intent may return, so its minute exists.
CREATE TRIGGER intent_is_dated_anew AFTER UPDATE OF created_us ON intent WHEN OLD.fee_gfri > 0
BEGIN
  UPDATE fee_sum SET fee_gfri = fee_gfri
    - CASE WHEN OLD.state IN ('rejected', 'lost') THEN 0 ELSE OLD.fee_gfri END
  WHERE epoch = OLD.epoch AND minute = OLD.created_us / 60000000;
  INSERT INTO fee_sum (epoch, minute, fee_gfri)
  VALUES (NEW.epoch, NEW.created_us / 60000000,
    CASE WHEN NEW.state IN ('rejected', 'lost') THEN 0 ELSE NEW.fee_gfri END)
  ON CONFLICT (epoch, minute) DO UPDATE SET fee_gfri = fee_gfri + excluded.fee_gfri;
END;
