-- Equal refusals of a minute: of one operation, for one reason. The first ones are journaled, too.
CREATE TABLE refusal (
  operation TEXT NOT NULL,
  reason TEXT NOT NULL,
  first_us INTEGER NOT NULL,
  last_us INTEGER NOT NULL,
  refusals INTEGER NOT NULL CHECK (refusals > 0),
  PRIMARY KEY (operation, reason, first_us)
) STRICT, WITHOUT ROWID;
CREATE INDEX refusal_first ON refusal (first_us);
