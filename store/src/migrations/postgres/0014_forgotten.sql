-- An account whose row is deleted is suggested to nobody any more: the row may have hidden one that
-- was taken down.
CREATE INDEX suggestion_actor ON suggestion (actor_did);
CREATE FUNCTION account_goes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM suggestion WHERE actor_did = OLD.did;
  RETURN NULL;
END $$;
CREATE TRIGGER account_goes AFTER DELETE ON account
  FOR EACH ROW WHEN (OLD.did IS NOT NULL) EXECUTE FUNCTION account_goes();
