-- More of a podcast: its other categories, its license, the places that it is about.
ALTER TABLE podcast
  ADD COLUMN categories TEXT NOT NULL DEFAULT '[]',
  ADD COLUMN license TEXT,
  ADD COLUMN license_url TEXT,
  ADD COLUMN locations TEXT NOT NULL DEFAULT '[]';
CREATE TRIGGER podcast_license_url_is_url
  BEFORE INSERT OR UPDATE OF license_url ON podcast FOR EACH ROW
  WHEN (NOT (NEW.license_url ~ '^https?://' AND length(NEW.license_url) < 2048))
  EXECUTE FUNCTION refuse_row();
