-- More of a podcast: its other categories, its license, the places that it is about.
ALTER TABLE podcast ADD COLUMN categories TEXT NOT NULL DEFAULT '[]';
ALTER TABLE podcast ADD COLUMN license TEXT;
ALTER TABLE podcast ADD COLUMN license_url TEXT;
ALTER TABLE podcast ADD COLUMN locations TEXT NOT NULL DEFAULT '[]';
CREATE TRIGGER podcast_license_comes BEFORE INSERT ON podcast
BEGIN
  SELECT RAISE(ABORT, 'constraint failed: podcast_license_url_is_url')
  WHERE NOT ((NEW.license_url GLOB 'http://*' OR NEW.license_url GLOB 'https://*')
    AND length(NEW.license_url) < 2048);
END;
CREATE TRIGGER podcast_license_changes BEFORE UPDATE OF license_url ON podcast
BEGIN
  SELECT RAISE(ABORT, 'constraint failed: podcast_license_url_is_url')
  WHERE NEW.license_url IS NOT OLD.license_url
    AND NOT ((NEW.license_url GLOB 'http://*' OR NEW.license_url GLOB 'https://*')
    AND length(NEW.license_url) < 2048);
END;
