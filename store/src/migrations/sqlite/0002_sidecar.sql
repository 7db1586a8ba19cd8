-- What the service endpoints read and keep. Tables down to sitemap_url are content: the product's
-- backend writes them. Those from age_session on are written by this program alone; the backend
-- reads age_user. Instants are microseconds since 1970 UTC, flags are 0 or 1, lists are JSON.

-- Users of the platform. Handles are in lower case and without @.
CREATE TABLE account (
  user_id TEXT PRIMARY KEY,
  did TEXT UNIQUE,
  handle TEXT UNIQUE,
  status TEXT NOT NULL DEFAULT 'active'
    CHECK (status IN ('active', 'deactivated', 'taken_down', 'banned')),
  created_us INTEGER NOT NULL
) STRICT;

-- Posts in feeds. sort_us is the earlier of the claimed and the indexed time, and never changes.
-- Sets and labels are in lower case.
CREATE TABLE feed_item (
  feed TEXT NOT NULL CHECK (feed IN (
    'trade-listings', 'collection-posts', 'fresh-pulls', 'showcase', 'journals', 'card-reviews')),
  post_uri TEXT NOT NULL,
  record_uri TEXT,
  author_did TEXT NOT NULL,
  set_code TEXT,
  sort_us INTEGER NOT NULL,
  hidden INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1)),
  PRIMARY KEY (feed, post_uri)
) STRICT;
CREATE INDEX feed_item_page ON feed_item (feed, sort_us DESC, post_uri DESC) WHERE hidden = 0;
CREATE INDEX feed_item_set ON feed_item (feed, set_code, sort_us DESC, post_uri DESC)
  WHERE hidden = 0;
CREATE INDEX feed_item_age ON feed_item (sort_us);

-- What a post is filtered by. Triggers copy the last three columns from the item: one index then
-- answers for a label, however rare it is.
CREATE TABLE feed_label (
  feed TEXT NOT NULL,
  post_uri TEXT NOT NULL,
  label TEXT NOT NULL,
  set_code TEXT,
  sort_us INTEGER NOT NULL DEFAULT 0,
  hidden INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (feed, post_uri, label),
  FOREIGN KEY (feed, post_uri) REFERENCES feed_item (feed, post_uri) ON DELETE CASCADE
) STRICT;
CREATE INDEX feed_label_page ON feed_label (feed, label, sort_us DESC, post_uri DESC)
  WHERE hidden = 0;
CREATE INDEX feed_label_set ON feed_label (feed, label, set_code, sort_us DESC, post_uri DESC)
  WHERE hidden = 0;
CREATE TRIGGER feed_label_comes AFTER INSERT ON feed_label
BEGIN
  UPDATE feed_label SET (set_code, sort_us, hidden) = (
    SELECT set_code, sort_us, hidden FROM feed_item
    WHERE feed = NEW.feed AND post_uri = NEW.post_uri)
  WHERE feed = NEW.feed AND post_uri = NEW.post_uri AND label = NEW.label;
END;
CREATE TRIGGER feed_item_changes AFTER UPDATE OF set_code, sort_us, hidden ON feed_item
WHEN (OLD.set_code, OLD.sort_us, OLD.hidden) IS NOT (NEW.set_code, NEW.sort_us, NEW.hidden)
BEGIN
  UPDATE feed_label SET set_code = NEW.set_code, sort_us = NEW.sort_us, hidden = NEW.hidden
  WHERE feed = NEW.feed AND post_uri = NEW.post_uri;
END;

-- What moderators say of a post, in every feed. Which labels hide it is configured.
CREATE TABLE moderation_label (
  post_uri TEXT NOT NULL,
  label TEXT NOT NULL,
  PRIMARY KEY (post_uri, label)
) STRICT;

-- Whom a viewer may want to follow, best first: a snapshot is written whole, with a greater id than
-- any before, and never changed. The viewer * stands for whoever has none.
CREATE TABLE suggestion (
  viewer_did TEXT NOT NULL,
  snapshot_id INTEGER NOT NULL,
  rank INTEGER NOT NULL CHECK (rank > 0),
  actor_did TEXT NOT NULL,
  post_uri TEXT NOT NULL,
  reason TEXT NOT NULL,
  built_us INTEGER NOT NULL,
  PRIMARY KEY (viewer_did, snapshot_id, rank)
) STRICT;
CREATE INDEX suggestion_age ON suggestion (built_us);

-- Who follows whom.
CREATE TABLE follow (
  did TEXT NOT NULL,
  subject_did TEXT NOT NULL,
  PRIMARY KEY (did, subject_did)
) STRICT;

-- A creator's podcast. guid is given once and never changes.
CREATE TABLE podcast (
  did TEXT PRIMARY KEY,
  guid TEXT NOT NULL UNIQUE,
  title TEXT NOT NULL,
  description TEXT NOT NULL,
  link TEXT NOT NULL,
  language TEXT NOT NULL,
  author TEXT,
  category TEXT NOT NULL,
  subcategory TEXT,
  explicit INTEGER NOT NULL CHECK (explicit IN (0, 1)),
  image_url TEXT NOT NULL,
  kind TEXT NOT NULL DEFAULT 'episodic' CHECK (kind IN ('episodic', 'serial')),
  medium TEXT NOT NULL DEFAULT 'podcast',
  locked INTEGER NOT NULL DEFAULT 1 CHECK (locked IN (0, 1)),
  owner_name TEXT,
  owner_email TEXT,
  copyright TEXT,
  funding TEXT NOT NULL DEFAULT '[]',
  persons TEXT NOT NULL DEFAULT '[]',
  txt TEXT NOT NULL DEFAULT '[]',
  complete INTEGER NOT NULL DEFAULT 0 CHECK (complete IN (0, 1)),
  block INTEGER NOT NULL DEFAULT 0 CHECK (block IN (0, 1)),
  new_feed_url TEXT,
  status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'taken_down')),
  updated_us INTEGER NOT NULL
) STRICT;

-- Its episodes. One whose time is to come appears at that time.
CREATE TABLE episode (
  id TEXT PRIMARY KEY,
  did TEXT NOT NULL REFERENCES podcast (did) ON DELETE CASCADE,
  guid TEXT NOT NULL,
  title TEXT NOT NULL,
  description_html TEXT NOT NULL,
  link TEXT,
  enclosure_url TEXT NOT NULL,
  enclosure_length INTEGER NOT NULL CHECK (enclosure_length > 0),
  enclosure_type TEXT NOT NULL,
  duration_s INTEGER CHECK (duration_s > 0),
  published_us INTEGER NOT NULL,
  season INTEGER CHECK (season > 0),
  number INTEGER CHECK (number > 0),
  kind TEXT NOT NULL DEFAULT 'full' CHECK (kind IN ('full', 'trailer', 'bonus')),
  explicit INTEGER CHECK (explicit IN (0, 1)),
  image_url TEXT,
  transcripts TEXT NOT NULL DEFAULT '[]',
  persons TEXT NOT NULL DEFAULT '[]',
  chapters_url TEXT,
  social_uri TEXT,
  visibility TEXT NOT NULL DEFAULT 'public'
    CHECK (visibility IN ('public', 'hidden', 'members', 'draft')),
  updated_us INTEGER NOT NULL,
  UNIQUE (did, guid),
  UNIQUE (did, enclosure_url)
) STRICT;
CREATE INDEX episode_page ON episode (did, published_us DESC, id DESC)
  WHERE visibility = 'public';

-- Pages of the product that search engines may list. A page of the sitemap holds 45,000 ids, so
-- that no address ever moves to another one. lastmod_us changes with whatever else of it does.
CREATE TABLE sitemap_url (
  id INTEGER PRIMARY KEY CHECK (id > 0),
  page INTEGER GENERATED ALWAYS AS ((id - 1) / 45000 + 1) STORED,
  loc TEXT NOT NULL UNIQUE CHECK (length(loc) < 2048),
  lastmod_us INTEGER NOT NULL,
  images TEXT NOT NULL DEFAULT '[]',
  indexable INTEGER NOT NULL DEFAULT 1 CHECK (indexable IN (0, 1))
) STRICT;
CREATE INDEX sitemap_url_lastmod ON sitemap_url (page, lastmod_us, id) WHERE indexable = 1;

-- One attempt of a user to prove an age. The reference is all that the verifier knows of the user.
CREATE TABLE age_session (
  subject_ref TEXT PRIMARY KEY,
  user_id TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN (
    'pending', 'verified', 'rejected', 'expired', 'revoked')),
  last_occurred_us INTEGER,
  created_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL
) STRICT;
CREATE INDEX age_session_user ON age_session (user_id, created_us);
CREATE INDEX age_session_open ON age_session (expires_us) WHERE last_occurred_us IS NULL;

-- Every event that was taken in, and what came of it: a repeated one finds its first outcome here.
CREATE TABLE age_event (
  event_id TEXT PRIMARY KEY,
  digest TEXT NOT NULL,
  subject_ref TEXT NOT NULL,
  status TEXT NOT NULL,
  age_band TEXT,
  verified_us INTEGER,
  expires_us INTEGER,
  occurred_us INTEGER NOT NULL,
  received_us INTEGER NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN ('applied', 'stale', 'invalid')),
  status_after TEXT NOT NULL
) STRICT;
CREATE INDEX age_event_subject ON age_event (subject_ref, occurred_us);
CREATE INDEX age_event_age ON age_event (received_us);

-- What is known of a user's age: for the backend to read. verified holds until expires_us.
CREATE TABLE age_user (
  user_id TEXT PRIMARY KEY,
  status TEXT NOT NULL CHECK (status IN (
    'pending', 'verified', 'rejected', 'expired', 'revoked')),
  age_band TEXT,
  verified_us INTEGER,
  expires_us INTEGER,
  last_occurred_us INTEGER NOT NULL
) STRICT;
