-- How large a URL may be in a file of the sitemap: a page whose URLs exceed a file is split by it.
-- At most 8 MiB, above which a URL is not listed. An upper bound: percent-encoding triples a byte,
-- & and ' become references of at most six, an image has two quotes and some 70 bytes of markup.
-- The home page is in the first file, too: the last id of page 1 weighs a whole file of 32 MiB, so
-- that it starts the next one.
ALTER TABLE sitemap_url ADD COLUMN weight BIGINT GENERATED ALWAYS AS (
  CASE id WHEN 45000 THEN 33554432 ELSE least(8388608, 256
    + 3 * octet_length(loc || images)
    + 3 * (length(loc || images) - length(replace(replace(loc || images, '&', ''), '''', '')))
    + 48 * (length(images) - length(replace(images, '"', '')))) END) STORED;

-- It also answers for counts and times. Ordered by id within a page, it is never taken to sort one.
DROP INDEX sitemap_url_lastmod;
CREATE INDEX sitemap_url_page ON sitemap_url (page, id, lastmod_us, weight) WHERE indexable = 1;
