-- The moderation labels of a post, a JSON list in order, next to what a page is sorted by. An index
-- then has the posts of each set of labels, so that a page never walks through blocked ones, however
-- many there are. Triggers keep it; writers leave it alone.
ALTER TABLE feed_item ADD COLUMN moderation TEXT COLLATE "C" NOT NULL DEFAULT '[]';
ALTER TABLE feed_label ADD COLUMN moderation TEXT COLLATE "C" NOT NULL DEFAULT '[]';
CREATE FUNCTION moderation_of(uri TEXT) RETURNS TEXT LANGUAGE sql STABLE AS $$
  SELECT COALESCE(CAST(json_agg(label ORDER BY label) AS TEXT), '[]') FROM moderation_label
  WHERE post_uri = uri
$$;
UPDATE feed_item SET moderation = moderation_of(post_uri)
WHERE post_uri IN (SELECT post_uri FROM moderation_label);
UPDATE feed_label SET moderation = moderation_of(post_uri)
WHERE post_uri IN (SELECT post_uri FROM moderation_label);

DROP INDEX feed_item_page;
DROP INDEX feed_item_set;
DROP INDEX feed_label_page;
DROP INDEX feed_label_set;
CREATE INDEX feed_item_post ON feed_item (post_uri);
CREATE INDEX feed_item_page ON feed_item (feed, moderation, sort_us DESC, post_uri DESC)
  WHERE hidden = 0;
CREATE INDEX feed_item_set ON feed_item (feed, set_code, moderation, sort_us DESC, post_uri DESC)
  WHERE hidden = 0;
CREATE INDEX feed_label_page ON feed_label (feed, label, moderation, sort_us DESC, post_uri DESC)
  WHERE hidden = 0;
CREATE INDEX feed_label_set
  ON feed_label (feed, label, set_code, moderation, sort_us DESC, post_uri DESC) WHERE hidden = 0;

-- Locks the items first: who labels the post at the same time is waited for, and the next statement
-- sees that label.
CREATE FUNCTION moderation_store(uri TEXT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM feed_item WHERE post_uri = uri ORDER BY feed FOR UPDATE;
  UPDATE feed_item SET moderation = moderation_of(uri)
  WHERE post_uri = uri AND moderation <> moderation_of(uri);
END $$;
CREATE FUNCTION moderation_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    PERFORM moderation_store(OLD.post_uri);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    PERFORM moderation_store(NEW.post_uri);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER moderation_changes AFTER INSERT OR UPDATE OR DELETE ON moderation_label
  FOR EACH ROW EXECUTE FUNCTION moderation_follow();
CREATE FUNCTION feed_item_fill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- shared: who removes a label at this moment is waited for, and then waits for the item
  PERFORM 1 FROM moderation_label WHERE post_uri = NEW.post_uri ORDER BY label FOR SHARE;
  NEW.moderation := moderation_of(NEW.post_uri);
  RETURN NEW;
END $$;
CREATE TRIGGER feed_item_comes BEFORE INSERT ON feed_item
  FOR EACH ROW EXECUTE FUNCTION feed_item_fill();

CREATE OR REPLACE FUNCTION feed_label_fill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- shared: who hides the item at this moment is waited for, and then waits for the label
  SELECT set_code, sort_us, hidden, moderation
  INTO NEW.set_code, NEW.sort_us, NEW.hidden, NEW.moderation FROM feed_item
  WHERE feed = NEW.feed AND post_uri = NEW.post_uri FOR SHARE;
  RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION feed_label_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE feed_label SET set_code = NEW.set_code, sort_us = NEW.sort_us, hidden = NEW.hidden,
    moderation = NEW.moderation
  WHERE feed = NEW.feed AND post_uri = NEW.post_uri;
  RETURN NULL;
END $$;
DROP TRIGGER feed_item_changes ON feed_item;
CREATE TRIGGER feed_item_changes AFTER UPDATE OF set_code, sort_us, hidden, moderation ON feed_item
  FOR EACH ROW
  WHEN ((OLD.set_code, OLD.sort_us, OLD.hidden, OLD.moderation)
    IS DISTINCT FROM (NEW.set_code, NEW.sort_us, NEW.hidden, NEW.moderation))
  EXECUTE FUNCTION feed_label_follow();

-- The newest change of a podcast's episodes is read from the index, which has no descriptions.
DROP INDEX episode_page;
CREATE INDEX episode_page ON episode (did, published_us DESC, id DESC, updated_us)
  WHERE visibility = 'public';
-- Who follows an account, to forget it.
CREATE INDEX follow_subject ON follow (subject_did);
