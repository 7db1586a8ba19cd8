-- The rules of import that a feed follows as well: it leaves out what breaks them, so a value that
-- breaks one is refused when it is written. Subcategories, the whole syntax of URLs and the members
-- of lists are not checked here. These are triggers: rows that are there stay as they are, and
-- their other columns can still be written. A CHECK would refuse to take such a podcast down.
CREATE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'new row for relation "%" violates "%"', TG_TABLE_NAME, TG_NAME
    USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END $$;
CREATE TRIGGER podcast_link_is_url
  BEFORE INSERT OR UPDATE OF link ON podcast FOR EACH ROW
  WHEN (NOT (NEW.link ~ '^https?://' AND length(NEW.link) < 2048))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER podcast_image_url_is_url
  BEFORE INSERT OR UPDATE OF image_url ON podcast FOR EACH ROW
  WHEN (NOT (NEW.image_url ~ '^https?://' AND length(NEW.image_url) < 2048))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER podcast_new_feed_url_is_url
  BEFORE INSERT OR UPDATE OF new_feed_url ON podcast FOR EACH ROW
  WHEN (NOT (NEW.new_feed_url ~ '^https?://' AND length(NEW.new_feed_url) < 2048))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER podcast_language_is_tag
  BEFORE INSERT OR UPDATE OF language ON podcast FOR EACH ROW
  WHEN (NOT (NEW.language ~ '^[a-z]{2,3}(-[A-Za-z0-9]{1,8})*$' AND length(NEW.language) <= 35))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER podcast_category_is_known
  BEFORE INSERT OR UPDATE OF category ON podcast FOR EACH ROW
  WHEN (NOT (NEW.category IN (
    'Arts', 'Business', 'Comedy', 'Education', 'Fiction', 'Government', 'Health & Fitness',
    'History', 'Kids & Family', 'Leisure', 'Music', 'News', 'Religion & Spirituality',
    'Science', 'Society & Culture', 'Sports', 'Technology', 'True Crime', 'TV & Film')))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER podcast_medium_is_known
  BEFORE INSERT OR UPDATE OF medium ON podcast FOR EACH ROW
  WHEN (NOT (NEW.medium IN ('podcast', 'music', 'video', 'film', 'audiobook', 'newsletter')))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER podcast_owner_email_is_address
  BEFORE INSERT OR UPDATE OF owner_email ON podcast FOR EACH ROW
  WHEN (NOT (NEW.owner_email ~ '^[^@[:space:]]+@[^@[:space:]]+\.[^@[:space:]]+$'))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER episode_link_is_url
  BEFORE INSERT OR UPDATE OF link ON episode FOR EACH ROW
  WHEN (NOT (NEW.link ~ '^https?://' AND length(NEW.link) < 2048))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER episode_image_url_is_url
  BEFORE INSERT OR UPDATE OF image_url ON episode FOR EACH ROW
  WHEN (NOT (NEW.image_url ~ '^https?://' AND length(NEW.image_url) < 2048))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER episode_chapters_url_is_url
  BEFORE INSERT OR UPDATE OF chapters_url ON episode FOR EACH ROW
  WHEN (NOT (NEW.chapters_url ~ '^https?://' AND length(NEW.chapters_url) < 2048))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER episode_enclosure_url_is_url
  BEFORE INSERT OR UPDATE OF enclosure_url ON episode FOR EACH ROW
  WHEN (NOT (NEW.enclosure_url ~ '^https?://' AND length(NEW.enclosure_url) < 2048))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER episode_enclosure_type_is_media
  BEFORE INSERT OR UPDATE OF enclosure_type ON episode FOR EACH ROW
  WHEN (NOT (NEW.enclosure_type ~ '^(audio|video)/'))
  EXECUTE FUNCTION refuse_row();
CREATE TRIGGER episode_social_uri_is_at_uri
  BEFORE INSERT OR UPDATE OF social_uri ON episode FOR EACH ROW
  WHEN (NOT (NEW.social_uri ~ '^at://did:[^/]+/[^/]+/[^/]+$' AND length(NEW.social_uri) <= 700))
  EXECUTE FUNCTION refuse_row();
