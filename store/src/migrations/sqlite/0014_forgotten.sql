-- An account whose row is deleted is suggested to nobody any more: the row may have hidden one that
-- was taken down.
CREATE INDEX suggestion_actor ON suggestion (actor_did);
CREATE TRIGGER account_goes AFTER DELETE ON account WHEN OLD.did IS NOT NULL
BEGIN
  DELETE FROM suggestion WHERE actor_did = OLD.did;
END;
