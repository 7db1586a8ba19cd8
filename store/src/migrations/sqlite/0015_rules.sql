-- The rules of import that a feed follows as well: it leaves out what breaks them, so a value that
-- breaks one is refused when it is written. Subcategories, the whole syntax of URLs and the members
-- of lists are not checked here. These are triggers: rows that are there stay as they are, and
-- their other columns can still be written. A CHECK would refuse to take such a podcast down.
CREATE TRIGGER podcast_comes BEFORE INSERT ON podcast
BEGIN
  SELECT RAISE(ABORT, 'constraint failed: podcast_link_is_url')
  WHERE NOT ((NEW.link GLOB 'http://*' OR NEW.link GLOB 'https://*')
    AND length(NEW.link) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: podcast_image_url_is_url')
  WHERE NOT ((NEW.image_url GLOB 'http://*' OR NEW.image_url GLOB 'https://*')
    AND length(NEW.image_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: podcast_new_feed_url_is_url')
  WHERE NOT ((NEW.new_feed_url GLOB 'http://*' OR NEW.new_feed_url GLOB 'https://*')
    AND length(NEW.new_feed_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: podcast_language_is_tag')
  WHERE NOT (NEW.language GLOB '[a-z][a-z]*'
    AND NEW.language NOT GLOB '*[^A-Za-z0-9-]*' AND length(NEW.language) <= 35);
  SELECT RAISE(ABORT, 'constraint failed: podcast_category_is_known')
  WHERE NOT (NEW.category IN (
    'Arts', 'Business', 'Comedy', 'Education', 'Fiction', 'Government', 'Health & Fitness',
    'History', 'Kids & Family', 'Leisure', 'Music', 'News', 'Religion & Spirituality',
    'Science', 'Society & Culture', 'Sports', 'Technology', 'True Crime', 'TV & Film'));
  SELECT RAISE(ABORT, 'constraint failed: podcast_medium_is_known')
  WHERE NOT (NEW.medium IN (
    'podcast', 'music', 'video', 'film', 'audiobook', 'newsletter'));
  SELECT RAISE(ABORT, 'constraint failed: podcast_owner_email_is_address')
  WHERE NOT (NEW.owner_email GLOB '?*@?*.?*'
    AND NEW.owner_email NOT GLOB '*@*@*' AND NEW.owner_email NOT GLOB '* *');
END;
CREATE TRIGGER podcast_changes BEFORE UPDATE OF
  link, image_url, new_feed_url, language, category, medium, owner_email ON podcast
BEGIN
  SELECT RAISE(ABORT, 'constraint failed: podcast_link_is_url')
  WHERE NEW.link IS NOT OLD.link
    AND NOT ((NEW.link GLOB 'http://*' OR NEW.link GLOB 'https://*')
    AND length(NEW.link) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: podcast_image_url_is_url')
  WHERE NEW.image_url IS NOT OLD.image_url
    AND NOT ((NEW.image_url GLOB 'http://*' OR NEW.image_url GLOB 'https://*')
    AND length(NEW.image_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: podcast_new_feed_url_is_url')
  WHERE NEW.new_feed_url IS NOT OLD.new_feed_url
    AND NOT ((NEW.new_feed_url GLOB 'http://*' OR NEW.new_feed_url GLOB 'https://*')
    AND length(NEW.new_feed_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: podcast_language_is_tag')
  WHERE NEW.language IS NOT OLD.language
    AND NOT (NEW.language GLOB '[a-z][a-z]*'
    AND NEW.language NOT GLOB '*[^A-Za-z0-9-]*' AND length(NEW.language) <= 35);
  SELECT RAISE(ABORT, 'constraint failed: podcast_category_is_known')
  WHERE NEW.category IS NOT OLD.category
    AND NOT (NEW.category IN (
    'Arts', 'Business', 'Comedy', 'Education', 'Fiction', 'Government', 'Health & Fitness',
    'History', 'Kids & Family', 'Leisure', 'Music', 'News', 'Religion & Spirituality',
    'Science', 'Society & Culture', 'Sports', 'Technology', 'True Crime', 'TV & Film'));
  SELECT RAISE(ABORT, 'constraint failed: podcast_medium_is_known')
  WHERE NEW.medium IS NOT OLD.medium
    AND NOT (NEW.medium IN (
    'podcast', 'music', 'video', 'film', 'audiobook', 'newsletter'));
  SELECT RAISE(ABORT, 'constraint failed: podcast_owner_email_is_address')
  WHERE NEW.owner_email IS NOT OLD.owner_email
    AND NOT (NEW.owner_email GLOB '?*@?*.?*'
    AND NEW.owner_email NOT GLOB '*@*@*' AND NEW.owner_email NOT GLOB '* *');
END;
CREATE TRIGGER episode_comes BEFORE INSERT ON episode
BEGIN
  SELECT RAISE(ABORT, 'constraint failed: episode_link_is_url')
  WHERE NOT ((NEW.link GLOB 'http://*' OR NEW.link GLOB 'https://*')
    AND length(NEW.link) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: episode_image_url_is_url')
  WHERE NOT ((NEW.image_url GLOB 'http://*' OR NEW.image_url GLOB 'https://*')
    AND length(NEW.image_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: episode_chapters_url_is_url')
  WHERE NOT ((NEW.chapters_url GLOB 'http://*' OR NEW.chapters_url GLOB 'https://*')
    AND length(NEW.chapters_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: episode_enclosure_url_is_url')
  WHERE NOT ((NEW.enclosure_url GLOB 'http://*' OR NEW.enclosure_url GLOB 'https://*')
    AND length(NEW.enclosure_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: episode_enclosure_type_is_media')
  WHERE NOT (NEW.enclosure_type GLOB 'audio/*' OR NEW.enclosure_type GLOB 'video/*');
  SELECT RAISE(ABORT, 'constraint failed: episode_social_uri_is_at_uri')
  WHERE NOT (NEW.social_uri GLOB 'at://did:?*/?*/?*' AND length(NEW.social_uri) <= 700);
END;
CREATE TRIGGER episode_changes BEFORE UPDATE OF
  link, image_url, chapters_url, enclosure_url, enclosure_type, social_uri ON episode
BEGIN
  SELECT RAISE(ABORT, 'constraint failed: episode_link_is_url')
  WHERE NEW.link IS NOT OLD.link
    AND NOT ((NEW.link GLOB 'http://*' OR NEW.link GLOB 'https://*')
    AND length(NEW.link) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: episode_image_url_is_url')
  WHERE NEW.image_url IS NOT OLD.image_url
    AND NOT ((NEW.image_url GLOB 'http://*' OR NEW.image_url GLOB 'https://*')
    AND length(NEW.image_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: episode_chapters_url_is_url')
  WHERE NEW.chapters_url IS NOT OLD.chapters_url
    AND NOT ((NEW.chapters_url GLOB 'http://*' OR NEW.chapters_url GLOB 'https://*')
    AND length(NEW.chapters_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: episode_enclosure_url_is_url')
  WHERE NEW.enclosure_url IS NOT OLD.enclosure_url
    AND NOT ((NEW.enclosure_url GLOB 'http://*' OR NEW.enclosure_url GLOB 'https://*')
    AND length(NEW.enclosure_url) < 2048);
  SELECT RAISE(ABORT, 'constraint failed: episode_enclosure_type_is_media')
  WHERE NEW.enclosure_type IS NOT OLD.enclosure_type
    AND NOT (NEW.enclosure_type GLOB 'audio/*' OR NEW.enclosure_type GLOB 'video/*');
  SELECT RAISE(ABORT, 'constraint failed: episode_social_uri_is_at_uri')
  WHERE NEW.social_uri IS NOT OLD.social_uri
    AND NOT (NEW.social_uri GLOB 'at://did:?*/?*/?*' AND length(NEW.social_uri) <= 700);
END;
