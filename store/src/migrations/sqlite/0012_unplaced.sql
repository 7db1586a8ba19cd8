-- Counts the writes in doubt, and the lost ones, that were never in a block: the node refused them.
CREATE INDEX intent_unplaced ON intent (state)
    WHERE state IN ('displaced', 'lost') AND included_number IS NULL;
