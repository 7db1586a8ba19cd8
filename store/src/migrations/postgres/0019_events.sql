-- The events that the backend has not got yet, each by its entry in the journal, and the last entry
-- that was read for them: none, until events are sent for the first time.
CREATE TABLE event_cursor (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL
);
CREATE TABLE event_waiting (
    seq BIGINT PRIMARY KEY,
    intent_id BIGINT NOT NULL,
    due_us BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    first_us BIGINT
);
CREATE INDEX event_waiting_intent ON event_waiting (intent_id, seq);
CREATE INDEX event_waiting_due ON event_waiting (due_us, seq);
