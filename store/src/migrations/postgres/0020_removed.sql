-- When an episode was last taken out of the podcast's feed: those that are left do not show it.
ALTER TABLE podcast ADD COLUMN removed_us BIGINT NOT NULL DEFAULT 0;
CREATE FUNCTION episode_was_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE podcast SET removed_us = floor(extract(epoch FROM clock_timestamp()))::bigint * 1000000
    WHERE did = OLD.did;
  RETURN NULL;
END $$;
CREATE TRIGGER episode_is_deleted AFTER DELETE ON episode FOR EACH ROW
  WHEN (OLD.visibility = 'public') EXECUTE FUNCTION episode_was_removed();
CREATE TRIGGER episode_is_hidden AFTER UPDATE OF did, visibility, published_us ON episode
  FOR EACH ROW WHEN (OLD.visibility = 'public'
    AND (NEW.did <> OLD.did OR NEW.visibility <> 'public' OR NEW.published_us > OLD.published_us))
  EXECUTE FUNCTION episode_was_removed();
