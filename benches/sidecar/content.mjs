// The content of the store, as SQL statements for both databases.

export const ITEMS = 1_000_000;
export const PAGES = 1_000_000;
export const EPISODES = 300;
export const SUBJECTS = 200_000;
export const CREATOR = 'did:plc:creatorcreatorcreatorcr2';

const FEEDS = [
  'trade-listings',
  'collection-posts',
  'fresh-pulls',
  'showcase',
  'journals',
  'card-reviews',
];
const SETS = ['base', 'jungle', 'fossil', 'rocket', 'gym'];
const SECOND_US = 1_000_000;
const DAY_US = 86_400 * SECOND_US;

/** Multiplied by this modulo 2^32, consecutive numbers are scattered without duplicates. */
const SCATTER = 2_654_435_761;
const CUT = 4_294_967_296;
const WIDTH = 48;

const numbers = (count) => `WITH RECURSIVE number(i) AS (
  SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < ${count})`;
const choice = (names, by) =>
  `CASE ${by} ${names.map((name, at) => `WHEN ${at} THEN '${name}'`).join(' ')} END`;

/** The reference of a subject by its number, here and in SQL. */
export const subject = (at) =>
  String((BigInt(at) * BigInt(SCATTER)) % BigInt(CUT)).padStart(WIDTH, '0');
const SUBJECT_SQL = `(CAST(i AS BIGINT) * ${SCATTER} % ${CUT})`;
const padded = (sql) => `substr('${'0'.repeat(WIDTH)}' || ${sql}, length('' || ${sql}) + 1)`;

const feed = (now) => `
INSERT INTO feed_item (feed, post_uri, author_did, set_code, sort_us)
${numbers(ITEMS)}
SELECT ${choice(FEEDS, 'i % 6')},
  'at://did:plc:author' || (i % 5000) || '/app.bsky.feed.post/' || (i % 6 + 1) || 'k' || i,
  'did:plc:author' || (i % 5000),
  CASE WHEN i % 10 < 2 THEN ${choice(SETS, 'i % 5')} END,
  ${now} - CAST(i AS BIGINT) * ${SECOND_US}
FROM number;
INSERT INTO feed_label (feed, post_uri, label)
SELECT feed, post_uri, 'holo' FROM feed_item WHERE post_uri LIKE '%7';
INSERT INTO moderation_label (post_uri, label)
SELECT post_uri, 'spam' FROM feed_item WHERE post_uri LIKE '%11';
`;

const podcast = (now) => `
INSERT INTO podcast (did, guid, title, description, link, language, category, explicit,
  image_url, updated_us)
VALUES ('${CREATOR}', '917393e3-1b1e-5cef-ace4-edaa54e1f810', 'Pulled This Week',
  'Two collectors open what they have found.', 'https://cards.example/podcast', 'en-GB',
  'Leisure', 0, 'https://media.cards.example/pulled.jpg', ${now - DAY_US});
INSERT INTO episode (id, did, guid, title, description_html, link, enclosure_url,
  enclosure_length, enclosure_type, duration_s, published_us, number, updated_us)
${numbers(EPISODES)}
SELECT 'episode-' || i, '${CREATOR}', 'urn:episode:' || i, 'Episode ' || i,
  '${'<p>What came out of <a href="https://cards.example/box">the box</a>.</p>'.repeat(12)}',
  'https://cards.example/podcast/' || i, 'https://media.cards.example/' || i || '.mp3',
  12345678, 'audio/mpeg', 1800, ${now} - (${EPISODES} - i) * ${7 * DAY_US} - ${DAY_US}, i,
  ${now - DAY_US}
FROM number;
`;

const sitemap = (now) => `
INSERT INTO sitemap_url (id, loc, lastmod_us, images)
${numbers(PAGES)}
SELECT i, 'https://cards.example/card/' || i, ${now} - CAST(i AS BIGINT) * ${SECOND_US},
  CASE WHEN i % 2 = 0 THEN '[]' ELSE '["https://media.cards.example/card/' || i || '.jpg"]' END
FROM number;
`;

const subjects = (now) => `
INSERT INTO age_session (subject_ref, user_id, status, created_us, expires_us)
${numbers(SUBJECTS)}
SELECT ${padded(SUBJECT_SQL)}, 'user-' || ${SUBJECT_SQL}, 'pending', ${now}, ${now + DAY_US}
FROM number;
`;

/** All statements. */
export function content() {
  const now = Date.now() * 1_000;
  const tables = [feed, podcast, sitemap, subjects].map((table) => table(now));
  return `BEGIN;\n${tables.join('')}COMMIT;\n`;
}
