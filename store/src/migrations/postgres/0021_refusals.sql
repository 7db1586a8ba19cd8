-- Equal refusals of a minute: of one operation, for one reason. The first ones are journaled, too.
CREATE TABLE refusal (
  operation TEXT COLLATE "C" NOT NULL,
  reason TEXT COLLATE "C" NOT NULL,
  first_us BIGINT NOT NULL,
  last_us BIGINT NOT NULL,
  refusals BIGINT NOT NULL CHECK (refusals > 0),
  PRIMARY KEY (operation, reason, first_us)
);
CREATE INDEX refusal_first ON refusal (first_us);
