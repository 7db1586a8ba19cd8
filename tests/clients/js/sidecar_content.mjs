// Records as the product's backend writes them into the store: one of each type, and their names.
import { createHash } from 'node:crypto';

const FEED = 'app.bsky.feed.generator';

/** The feeds that anyone may read. */
export const PUBLIC_FEEDS = [
  'trade-listings',
  'collection-posts',
  'fresh-pulls',
  'showcase',
  'journals',
  'card-reviews',
];
/** The feed that differs for each viewer. */
export const PERSONAL_FEED = 'whoto-follow';

/** The same letters of an alphabet for the same name. */
function letters(alphabet, length, name) {
  const digest = createHash('sha256').update(name).digest();
  return [...digest.subarray(0, length)].map((byte) => alphabet[byte % alphabet.length]).join('');
}

/** A did:plc for a name; it belongs to no real account. */
export const did = (name) => `did:plc:${letters('abcdefghijklmnopqrstuvwxyz234567', 24, name)}`;

/** A user of the platform, for a name. */
export function user(name) {
  const hex = createHash('sha256').update(name).digest('hex');
  return hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/, '$1-$2-4$3-8$4-$5');
}

const rkey = (name) => letters('234567abcdefghijklmnopqrstuvwxyz', 13, name);

export const postUri = (author, name) => `at://${author}/app.bsky.feed.post/${rkey(name)}`;

/** The AT URI of one of our feeds. */
export const feedUri = (name, authority) => `at://${authority}/${FEED}/${name}`;

export const minutes = (count) => count * 60_000;
export const iso = (time) => new Date(time).toISOString();

export const account = (name, more = {}) => ({
  type: 'account',
  user_id: user(name),
  did: did(name),
  handle: `${name}.cards.example`,
  status: 'active',
  created_at: '2026-01-01T00:00:00Z',
  ...more,
});

export const feedItem = (feed, name, time, more = {}) => ({
  type: 'feed_item',
  feed,
  post_uri: postUri(did('author'), `${feed} ${name}`),
  author_did: did('author'),
  sort_at: iso(time),
  labels: [],
  ...more,
});

export const without = ({ feed, post_uri }) => ({
  type: 'feed_item',
  delete: true,
  feed,
  post_uri,
});

export const suggestions = (viewer, time, actors) => ({
  type: 'suggestion',
  viewer_did: viewer,
  built_at: iso(time),
  items: actors.map((actor) => ({
    actor_did: actor,
    post_uri: postUri(actor, 'introduction'),
    reason: 'same_sets',
  })),
});

export const follow = (follower, subject) => ({
  type: 'follow',
  did: follower,
  subject_did: subject,
});

export const podcast = (creator, more = {}) => ({
  type: 'podcast',
  did: creator,
  title: 'Pulled This Week',
  description: 'Two collectors open what they have found.',
  link: 'https://cards.example/podcasts/pulled-this-week',
  language: 'en-GB',
  author: 'Pulled This Week',
  category: 'Leisure',
  subcategory: 'Hobbies',
  explicit: false,
  image_url: 'https://media.cards.example/art/pulled.jpg',
  updated_at: '2026-06-01T12:00:00Z',
  ...more,
});

export const episode = (creator, name, time, more = {}) => ({
  type: 'episode',
  id: `${creator}/${name}`,
  did: creator,
  guid: `urn:episode:${name}`,
  title: `Episode ${name}`,
  description_html: `<p>What came out of box ${name}.</p>`,
  link: `https://cards.example/podcasts/pulled-this-week/${name}`,
  enclosure_url: `https://media.cards.example/audio/${name}.mp3`,
  enclosure_length: 1_234_567,
  enclosure_type: 'audio/mpeg',
  duration_s: 1800,
  published_at: iso(time),
  visibility: 'public',
  updated_at: iso(time),
  ...more,
});

export const page = (loc, time, more = {}) => ({
  type: 'page',
  loc,
  lastmod_at: iso(time),
  images: [],
  ...more,
});
