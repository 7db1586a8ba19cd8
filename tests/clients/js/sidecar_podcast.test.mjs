// A podcast's feed, as the parser of the Podcast Index reads it: every published episode with all
// of its fields, and nothing of the others.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, test } from 'node:test';
import { parseFeed } from 'podcast-partytime';
import { account, did, episode, minutes, podcast, postUri } from './sidecar_content.mjs';
import { eventually } from './relay_world.mjs';
import { BASE_URL, Sidecar } from './sidecar_world.mjs';

const START = Date.parse('2026-02-01T08:00:00Z');
const DAY = minutes(24 * 60);
const FEED = '/functions/podcast-rss-feed';
/** The maximum number of episodes on a page. */
const MOST = 300;

const CREATOR = did('creator');
const SERIAL = did('serial');
const LONG = did('long');
const HARD = did('hard');

/** Texts that break naive documents. */
const HARD_TEXTS = [
  ['amp', 'Salt & <Pepper> "quoted" \'single\''],
  ['cdata', 'ends ]]> here'],
  ['emoji', 'Holo \u{1F0CF}\u{1F9D9}\u200D\u2642\uFE0F pull'],
  ['rtl', 'بطاقات \u202Bנדירות\u202C'],
];

const CONTENT = [
  account('creator'),
  account('serial'),
  account('long'),
  account('hard'),
  account('gone', { status: 'taken_down' }),
  account('away', { status: 'deactivated' }),
  account('silent'),
  podcast(CREATOR, {
    guid: '9b024349-ccf0-5f69-a609-6b82873eab3c',
    owner_name: 'Pulled Team',
    owner_email: 'podcast@cards.example',
    copyright: '2026 Pulled Team',
    funding: [{ url: 'https://cards.example/support', text: 'Support the show' }],
    persons: [
      { name: 'Ash Sample', role: 'host', group: 'cast', href: 'https://cards.example/ash' },
    ],
    txt: [{ purpose: 'verify', value: 'code-1234' }],
    locked: true,
  }),
  ...Array.from({ length: 12 }, (_, number) =>
    episode(CREATOR, `${number}`, START + number * DAY, {
      season: 1,
      number: number + 1,
      kind: number === 0 ? 'trailer' : 'full',
      explicit: number % 2 === 1,
      image_url: `https://media.cards.example/art/${number}.jpg`,
      chapters_url: `https://media.cards.example/chapters/${number}.json`,
      social_uri: postUri(CREATOR, `episode ${number}`),
      transcripts: [
        { url: `https://media.cards.example/t/${number}.vtt`, kind: 'text/vtt', language: 'en' },
      ],
      persons: [{ name: `Guest ${number}`, role: 'guest', group: 'cast' }],
    }),
  ),
  ...['hidden', 'members', 'draft'].map((visibility) =>
    episode(CREATOR, visibility, START, { visibility }),
  ),
  episode(CREATOR, 'scheduled', Date.parse('2099-01-01T00:00:00Z')),
  podcast(SERIAL, { kind: 'serial', explicit: true, complete: true, locked: false }),
  ...[3, 1, 2].map((number) => episode(SERIAL, `s${number}`, START + number * DAY, { number })),
  podcast(LONG),
  ...Array.from({ length: MOST + 25 }, (_, number) =>
    episode(LONG, `l${number}`, START + number * minutes(10)),
  ),
  podcast(HARD, { title: HARD_TEXTS[0][1] }),
  ...HARD_TEXTS.map(([name, title], number) =>
    episode(HARD, name, START + number * DAY, {
      title,
      description_html: `<p>${title}</p>${'<p>é wide</p>'.repeat(800)}`,
    }),
  ),
  podcast(did('gone'), { link: 'https://cards.example/podcasts/gone' }),
  podcast(did('away'), { link: 'https://cards.example/podcasts/away' }),
];

let sidecar;
before(async () => {
  sidecar = await Sidecar.start({ content: CONTENT });
});
after(() => sidecar?.end());

const ask = (query, init) => sidecar.ask(`${FEED}?${new URLSearchParams(query)}`, init);

/** A feed as the parser reads it. */
async function read(creator) {
  const { status, text } = await ask({ did: creator });
  assert.equal(status, 200, text);
  const feed = parseFeed(text);
  assert.ok(feed, `the parser refuses it:\n${text.slice(0, 2000)}`);
  return feed;
}

const newestFirst = (items) => items.map(({ guid }) => guid);
const guids = (...names) => names.map((name) => `urn:episode:${name}`);

/** A version 5 UUID (RFC 9562) in the namespace of podcasts. */
function podcastGuid(url) {
  const namespace = Buffer.from('ead4c236bf5858c6a2c6a6b28d128cb6', 'hex');
  const name = url.replace(/^\w+:\/\//, '');
  const digest = createHash('sha1').update(namespace).update(name).digest();
  digest[6] = (digest[6] & 0x0f) | 0x50;
  digest[8] = (digest[8] & 0x3f) | 0x80;
  const hex = digest.subarray(0, 16).toString('hex');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

test('the parser reads each published episode, newest first', async () => {
  const { items } = await read(CREATOR);
  const out = Array.from({ length: 12 }, (_, number) => `${11 - number}`);
  assert.deepEqual(newestFirst(items), guids(...out));
});

test('the parser reads every field of the channel', async () => {
  const feed = await read(CREATOR);
  const expected = {
    title: 'Pulled This Week',
    description: 'Two collectors open what they have found.',
    link: 'https://cards.example/podcasts/pulled-this-week',
    language: 'en-gb',
    author: 'Pulled This Week',
    explicit: false,
    itunesImage: 'https://media.cards.example/art/pulled.jpg',
    itunesType: 'episodic',
    itunesBlock: false,
    itunesComplete: false,
    copyright: '2026 Pulled Team',
    guid: '9b024349-ccf0-5f69-a609-6b82873eab3c',
    locked: true,
    podcastOwner: 'podcast@cards.example',
    medium: 'podcast',
  };
  for (const [name, value] of Object.entries(expected)) {
    const said = name === 'language' ? feed.language.toLowerCase() : feed[name];
    assert.deepEqual(said, value, name);
  }
  assert.deepEqual(feed.owner, { name: 'Pulled Team', email: 'podcast@cards.example' });
  assert.deepEqual(feed.podcastFunding, [
    { url: 'https://cards.example/support', message: 'Support the show' },
  ]);
  assert.deepEqual(feed.podcastPeople, [
    { name: 'Ash Sample', role: 'Host', group: 'Cast', href: 'https://cards.example/ash' },
  ]);
  assert.deepEqual(feed.podcastTxt, [{ value: 'code-1234', purpose: 'verify' }]);
  assert.deepEqual(feed.itunesCategory, ['Leisure > Hobbies']);
  assert.equal(feed.pubsub?.self, `${BASE_URL}${FEED}?did=${CREATOR}`);
});

test('the parser reads every field of an episode', async () => {
  const { items } = await read(CREATOR);
  items.toReversed().forEach((item, number) => {
    assert.equal(item.title, `Episode ${number}`);
    assert.equal(item.link, `https://cards.example/podcasts/pulled-this-week/${number}`);
    assert.deepEqual(item.enclosure, {
      url: `https://media.cards.example/audio/${number}.mp3`,
      length: 1_234_567,
      type: 'audio/mpeg',
    });
    assert.deepEqual(
      [item.duration, item.explicit, item.itunesEpisodeType, item.itunesSeason, item.itunesEpisode],
      [1800, number % 2 === 1, number === 0 ? 'trailer' : 'full', 1, number + 1],
    );
    assert.equal(item.pubDate.getTime(), START + number * DAY);
    assert.equal(item.itunesImage, `https://media.cards.example/art/${number}.jpg`);
    assert.equal(item.podcastChapters.url, `https://media.cards.example/chapters/${number}.json`);
    assert.equal(item.podcastChapters.type, 'application/json+chapters');
    assert.deepEqual(item.podcastTranscripts, [
      { url: `https://media.cards.example/t/${number}.vtt`, type: 'text/vtt', language: 'en' },
    ]);
    const guest = { name: `Guest ${number}`, role: 'Guest', group: 'Cast' };
    assert.deepEqual(item.podcastPeople, [guest]);
    const [{ platform, url, id }] = item.podcastSocialInteraction;
    const post = postUri(CREATOR, `episode ${number}`);
    assert.deepEqual([platform, url, id], ['atproto', post, '@creator.cards.example']);
    assert.match(item.description, new RegExp(`What came out of box ${number}\\.`));
  });
});

test('a complete serial is marked so', async () => {
  const feed = await read(SERIAL);
  assert.deepEqual(
    [feed.itunesType, feed.itunesComplete, feed.explicit, feed.locked, feed.owner],
    ['serial', true, true, undefined, undefined],
  );
  assert.deepEqual(newestFirst(feed.items), guids('s3', 's2', 's1'));
  assert.deepEqual(feed.items.map(({ itunesEpisode }) => itunesEpisode), [3, 2, 1]);
});

test('a podcast without a guid derives one from its URL', async () => {
  const { guid } = await read(SERIAL);
  assert.equal(guid, podcastGuid(`${BASE_URL}${FEED}?did=${SERIAL}`));
  assert.equal(podcastGuid('https://podnews.net/rss'), '9b024349-ccf0-5f69-a609-6b82873eab3c');
});

test('a large feed lists the newest episodes first, and the others on the next page', async () => {
  const { items } = await read(LONG);
  const names = Array.from({ length: MOST }, (_, number) => `l${MOST + 24 - number}`);
  assert.deepEqual(newestFirst(items), guids(...names));
  const next = await ask({ did: LONG, page: '2' });
  const others = Array.from({ length: 25 }, (_, number) => `l${24 - number}`);
  assert.deepEqual(newestFirst(parseFeed(next.text).items), guids(...others));
  assert.equal((await ask({ did: LONG, page: '3' })).status, 404);
});

test('special characters survive unchanged', async () => {
  const feed = await read(HARD);
  assert.equal(feed.title, HARD_TEXTS[0][1]);
  const titles = new Map(feed.items.map(({ guid, title }) => [guid, title]));
  for (const [name, title] of HARD_TEXTS) {
    assert.equal(titles.get(`urn:episode:${name}`), title, name);
  }
});

test('the feed by handle equals the feed by DID', async () => {
  const { text } = await ask({ did: CREATOR });
  const handles = ['creator.cards.example', '@creator.cards.example', 'Creator.CARDS.example'];
  for (const handle of handles) {
    const answer = await ask({ handle });
    assert.deepEqual([answer.status, answer.text], [200, text], handle);
  }
  assert.equal((await ask({ did: CREATOR, handle: 'creator.cards.example' })).text, text);
});

test('a conditional request for an unchanged feed gets 304', async () => {
  const first = await ask({ did: CREATOR });
  const headers = {
    'cache-control': /^public, max-age=300, stale-if-error=86400$/,
    'content-type': /^application\/rss\+xml; charset=utf-8$/,
    etag: /^"[0-9a-f]{64}"$/,
    'last-modified': /GMT$/,
    link: /; rel="self"/,
  };
  for (const [name, pattern] of Object.entries(headers)) {
    assert.match(first.headers.get(name) ?? '', pattern, name);
  }
  for (const [condition, header] of [
    ['if-none-match', 'etag'],
    ['if-modified-since', 'last-modified'],
  ]) {
    const headers = { [condition]: first.headers.get(header) };
    const again = await ask({ did: CREATOR }, { headers });
    assert.deepEqual([again.status, again.text], [304, ''], condition);
    assert.equal(again.headers.get('etag'), first.headers.get('etag'));
  }
  // fetch accepts gzip, and hides the length of what it decodes
  const identity = { 'accept-encoding': 'identity' };
  const head = await ask({ did: CREATOR }, { method: 'HEAD', headers: identity });
  assert.deepEqual([head.status, head.text], [200, '']);
  assert.equal(head.headers.get('content-length'), `${Buffer.byteLength(first.text)}`);
});

test('an episode appears at its time, and caches expire then', async () => {
  const creator = did('timed');
  const time = Date.now() + 4000;
  const episodes = [episode(creator, 't1', START), episode(creator, 't2', time)];
  await sidecar.load([podcast(creator), ...episodes]);
  const first = await ask({ did: creator });
  assert.deepEqual(newestFirst(parseFeed(first.text).items), guids('t1'));
  const [, age] = first.headers.get('cache-control').match(/^public, max-age=(\d+),/);
  assert.ok(Number(age) >= 1 && Number(age) <= 4, `cached for ${age} s`);
  const headers = { 'if-none-match': first.headers.get('etag') };
  const second = await eventually('the episode to appear', async () => {
    const answer = await ask({ did: creator }, { headers });
    return answer.status !== 304 && answer;
  });
  assert.ok(Date.now() >= time, 'it was early');
  assert.deepEqual(newestFirst(parseFeed(second.text).items), guids('t2', 't1'));
  assert.match(second.headers.get('cache-control'), /max-age=300,/);
});

const ABSENT = [
  ['neither a DID nor a handle', {}, 400, 'InvalidRequest'],
  ['two creators', { did: CREATOR, handle: 'serial.cards.example' }, 400, 'InvalidRequest'],
  ['an invalid DID', { did: 'creator' }, 404, 'NotFound'],
  ['an invalid handle', { handle: 'creator' }, 404, 'NotFound'],
  ['an unknown creator', { did: did('unknown') }, 404, 'NotFound'],
  ['a creator without a podcast', { handle: 'silent.cards.example' }, 404, 'NotFound'],
  ['a creator who was taken down', { did: did('gone') }, 410, 'Gone'],
  ['a deactivated creator', { handle: 'away.cards.example' }, 410, 'Gone'],
];
for (const [what, query, status, name] of ABSENT) {
  test(`${what} has no feed: ${status}`, async () => {
    const answer = await ask(query);
    assert.deepEqual([answer.status, answer.json?.error], [status, name], answer.text);
    assert.equal(answer.headers.get('cache-control'), 'no-store');
  });
}
