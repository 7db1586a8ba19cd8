-- What an operator looks for in the journal, newest first.

CREATE INDEX intent_search_hash ON intent (transaction_hash, id);
CREATE INDEX intent_search_subject ON intent (subject, id);
CREATE INDEX intent_search_state ON intent (state, id);
CREATE INDEX intent_search_operation ON intent (operation, id);
CREATE INDEX journal_refused ON journal (seq) WHERE kind = 'refused';
