-- When old rows were last deleted. Of a store where that never happened, when this table was made.
CREATE TABLE pruning (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    pruned_us INTEGER NOT NULL
) STRICT;
INSERT INTO pruning (id, pruned_us) VALUES (1, unixepoch() * 1000000);
