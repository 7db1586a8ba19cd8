-- The moderation labels of a post, a JSON list in order, next to what a page is sorted by. An index
-- then has the posts of each set of labels, so that a page never walks through blocked ones, however
-- many there are. Triggers keep it; writers leave it alone. The order comes from a limited subquery,
-- because SQLite before 3.44 cannot read a schema with ORDER BY in an aggregate.
ALTER TABLE feed_item ADD COLUMN moderation TEXT NOT NULL DEFAULT '[]';
ALTER TABLE feed_label ADD COLUMN moderation TEXT NOT NULL DEFAULT '[]';
UPDATE feed_item SET moderation = (
  SELECT json_group_array(label) FROM (
    SELECT label FROM moderation_label WHERE moderation_label.post_uri = feed_item.post_uri
    ORDER BY label LIMIT -1))
WHERE post_uri IN (SELECT post_uri FROM moderation_label);
UPDATE feed_label SET moderation = (
  SELECT moderation FROM feed_item
  WHERE feed_item.feed = feed_label.feed AND feed_item.post_uri = feed_label.post_uri)
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

CREATE TRIGGER moderation_comes AFTER INSERT ON moderation_label
BEGIN
  UPDATE feed_item SET moderation = (
    SELECT json_group_array(label) FROM (
      SELECT label FROM moderation_label WHERE post_uri = NEW.post_uri ORDER BY label LIMIT -1))
  WHERE post_uri = NEW.post_uri;
END;
CREATE TRIGGER moderation_goes AFTER DELETE ON moderation_label
BEGIN
  UPDATE feed_item SET moderation = (
    SELECT json_group_array(label) FROM (
      SELECT label FROM moderation_label WHERE post_uri = OLD.post_uri ORDER BY label LIMIT -1))
  WHERE post_uri = OLD.post_uri;
END;
CREATE TRIGGER moderation_changes AFTER UPDATE ON moderation_label
BEGIN
  UPDATE feed_item SET moderation = (
    SELECT json_group_array(label) FROM (
      SELECT label FROM moderation_label WHERE moderation_label.post_uri = feed_item.post_uri
      ORDER BY label LIMIT -1))
  WHERE post_uri IN (OLD.post_uri, NEW.post_uri);
END;
CREATE TRIGGER feed_item_comes AFTER INSERT ON feed_item
WHEN NEW.moderation <> '[]'
  OR EXISTS (SELECT 1 FROM moderation_label WHERE post_uri = NEW.post_uri)
BEGIN
  UPDATE feed_item SET moderation = (
    SELECT json_group_array(label) FROM (
      SELECT label FROM moderation_label WHERE post_uri = NEW.post_uri ORDER BY label LIMIT -1))
  WHERE feed = NEW.feed AND post_uri = NEW.post_uri;
END;

DROP TRIGGER feed_label_comes;
CREATE TRIGGER feed_label_comes AFTER INSERT ON feed_label
BEGIN
  UPDATE feed_label SET (set_code, sort_us, hidden, moderation) = (
    SELECT set_code, sort_us, hidden, moderation FROM feed_item
    WHERE feed = NEW.feed AND post_uri = NEW.post_uri)
  WHERE feed = NEW.feed AND post_uri = NEW.post_uri AND label = NEW.label;
END;
DROP TRIGGER feed_item_changes;
CREATE TRIGGER feed_item_changes AFTER UPDATE OF set_code, sort_us, hidden, moderation ON feed_item
WHEN (OLD.set_code, OLD.sort_us, OLD.hidden, OLD.moderation)
  IS NOT (NEW.set_code, NEW.sort_us, NEW.hidden, NEW.moderation)
BEGIN
  UPDATE feed_label SET set_code = NEW.set_code, sort_us = NEW.sort_us, hidden = NEW.hidden,
    moderation = NEW.moderation
  WHERE feed = NEW.feed AND post_uri = NEW.post_uri;
END;

-- The newest change of a podcast's episodes is read from the index, which has no descriptions.
DROP INDEX episode_page;
CREATE INDEX episode_page ON episode (did, published_us DESC, id DESC, updated_us)
  WHERE visibility = 'public';
-- Who follows an account, to forget it.
CREATE INDEX follow_subject ON follow (subject_did);
