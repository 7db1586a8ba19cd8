-- Which episodes appeared or changed since a time.
CREATE INDEX episode_published ON episode (published_us, did) WHERE visibility = 'public';
CREATE INDEX episode_updated ON episode (updated_us, did, published_us)
  WHERE visibility = 'public';
