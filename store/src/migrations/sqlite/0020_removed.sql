-- When an episode was last taken out of the podcast's feed: those that are left do not show it.
ALTER TABLE podcast ADD COLUMN removed_us INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER episode_is_deleted AFTER DELETE ON episode WHEN OLD.visibility = 'public'
BEGIN
  UPDATE podcast SET removed_us = unixepoch() * 1000000 WHERE did = OLD.did;
END;
CREATE TRIGGER episode_is_hidden AFTER UPDATE OF did, visibility, published_us ON episode
  WHEN OLD.visibility = 'public'
  AND (NEW.did <> OLD.did OR NEW.visibility <> 'public' OR NEW.published_us > OLD.published_us)
BEGIN
  UPDATE podcast SET removed_us = unixepoch() * 1000000 WHERE did = OLD.did;
END;
