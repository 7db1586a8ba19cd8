-- The epoch of the chain that all relays of this store write to, and one that may replace it.
CREATE TABLE chain_epoch (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch TEXT COLLATE "C" NOT NULL,
    candidate TEXT COLLATE "C",
    candidate_us BIGINT
);
