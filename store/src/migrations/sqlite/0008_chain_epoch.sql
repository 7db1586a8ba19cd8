-- The epoch of the chain that all relays of this store write to, and one that may replace it.
CREATE TABLE chain_epoch (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch TEXT NOT NULL,
    candidate TEXT,
    candidate_us INTEGER
) STRICT;
