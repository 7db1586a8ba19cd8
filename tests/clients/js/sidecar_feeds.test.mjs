// The feeds, as clients of the AT Protocol read them: the protocol's lexicons validate each
// response, and paging to the end returns each post once and in order despite concurrent changes.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AppBskyFeedGetFeedSkeleton, AtpAgent, XRPCError, lexicons } from '@atproto/api';
import { DidResolver } from '@atproto/identity';
import {
  PERSONAL_FEED,
  PUBLIC_FEEDS,
  account,
  did,
  feedItem,
  feedUri,
  follow,
  minutes,
  suggestions,
  user,
  without,
} from './sidecar_content.mjs';
import { freePort } from '../../crash/lib/sidecar.mjs';
import { SERVICE_DID, Sidecar } from './sidecar_world.mjs';

const NSID = 'app.bsky.feed.getFeedSkeleton';
const START = Date.parse('2026-05-01T00:00:00Z');
const LIMITS = [1, 7, 50, 100];
const SETS = ['base1', 'neo-genesis', undefined];
/** Items per feed; 100 ends exactly at a page boundary, and one feed is empty. */
const SIZES = [137, 100, 50, 203, 1, 0];

const at = (name) => feedUri(name, SERVICE_DID);

/** Four share each minute; some have a set, labels, a moderator's label, or are hidden. */
function item(feed, name) {
  const number = Math.floor(name);
  const time = START + minutes(Math.floor(number / 4));
  const set = SETS[number % SETS.length];
  const labels = [number % 2 ? 'holo' : 'graded', ...(number % 5 ? [] : ['rare'])];
  return feedItem(feed, `${name}`, time, {
    ...(set && { set_code: set }),
    labels,
    ...(number % 11 === 10 && { moderation_labels: ['spam'] }),
    ...(number % 13 === 12 && { hidden: true }),
  });
}

const ITEMS = Object.fromEntries(
  PUBLIC_FEEDS.map((feed, which) => [
    feed,
    Array.from({ length: SIZES[which] }, (_, number) => item(feed, number)),
  ]),
);

/** What a feed shows, newest first. */
function shown(items, { set, labels = [] } = {}) {
  return items
    .filter((one) => !one.hidden && !one.moderation_labels)
    .filter((one) => set === undefined || one.set_code === set)
    .filter((one) => labels.length === 0 || labels.some((label) => one.labels.includes(label)))
    .sort((a, b) => (newer(a, b) ? -1 : 1))
    .map((one) => one.post_uri);
}

const newer = (a, b) =>
  a.sort_at === b.sort_at ? a.post_uri > b.post_uri : a.sort_at > b.sort_at;

const ACTORS = Array.from({ length: 23 }, (_, number) => did(`actor ${number}`));
const FOLLOWED = [ACTORS[0], ACTORS[7], ACTORS[22]];

let sidecar;
let agent;
let session;

before(async () => {
  sidecar = await Sidecar.start({
    content: [
      account('viewer'),
      ...Object.values(ITEMS).flat(),
      suggestions(did('viewer'), Date.now() - minutes(5), ACTORS),
      ...FOLLOWED.map((subject) => follow(did('viewer'), subject)),
    ],
    settings: {
      'sidecar.feeds': {
        privacy_policy: 'https://cards.example/privacy',
        terms_of_service: 'https://cards.example/terms',
      },
    },
  });
  agent = new AtpAgent({ service: sidecar.url });
  session = await sidecar.session(user('viewer'));
});
after(() => sidecar?.end());

/** A page as requested by the protocol's client, validated by its lexicon. */
async function page(params, headers = {}) {
  lexicons.assertValidXrpcParams(NSID, params);
  const { data } = await agent.app.bsky.feed.getFeedSkeleton(params, { headers });
  return data;
}

/** The same with our own parameters, which that client does not know. */
async function filtered(params, headers = {}) {
  const query = new URLSearchParams(params);
  const answer = await sidecar.ask(`/functions/getFeedSkeleton?${query}`, { headers });
  assert.equal(answer.status, 200, answer.text);
  lexicons.assertValidXrpcOutput(NSID, answer.json);
  return answer.json;
}

/** All pages to the last. Each earlier page is full, and no page repeats the cursor it was
 * requested with. */
async function whole(read, params, between = () => {}) {
  const items = [];
  let cursor;
  do {
    const { feed, cursor: next } = await read({ ...params, ...(cursor && { cursor }) });
    if (next !== undefined) {
      assert.equal(feed.length, params.limit, 'only the last page may be short');
      assert.notEqual(next, cursor, 'a cursor came back');
    }
    items.push(...feed);
    cursor = next;
    await between(items);
  } while (cursor !== undefined);
  return items;
}

const posts = (items) => items.map(({ post }) => post);

/** The protocol client's error for a response. */
async function refused(params, headers) {
  const error = await page(params, headers).then(
    () => assert.fail(`${JSON.stringify(params)} was answered`),
    (error) => error,
  );
  assert.ok(error instanceof XRPCError, `${error}`);
  return error;
}

test('the description names each feed, the publisher and both policies', async () => {
  const { data } = await agent.app.bsky.feed.describeFeedGenerator();
  const uris = [...PUBLIC_FEEDS, PERSONAL_FEED].map(at);
  assert.deepEqual(data.feeds.map(({ uri }) => uri).sort(), uris.sort());
  assert.equal(data.did, SERVICE_DID);
  assert.deepEqual(data.links, {
    privacyPolicy: 'https://cards.example/privacy',
    termsOfService: 'https://cards.example/terms',
  });
  const function_ = await sidecar.ask('/functions/describeFeedGenerator');
  lexicons.assertValidXrpcOutput('app.bsky.feed.describeFeedGenerator', function_.json);
  assert.deepEqual(function_.json, data);
  assert.equal(function_.headers.get('cache-control'), 'public, max-age=3600');
});

test('a DID resolver finds the feed generator by its DID', async () => {
  const port = await freePort();
  const service = `did:web:localhost%3A${port}`;
  const origin = `http://localhost:${port}`;
  const own = await Sidecar.start({
    settings: {
      sidecar: { listen: `127.0.0.1:${port}`, base_url: origin },
      'sidecar.feeds': { service_did: service },
    },
  });
  try {
    const document = await new DidResolver({}).resolve(service);
    assert.ok(document, 'no document was found');
    assert.deepEqual(document.service, [
      { id: '#bsky_fg', type: 'BskyFeedGenerator', serviceEndpoint: origin },
    ]);
    const described = await new AtpAgent({ service: origin }).app.bsky.feed.describeFeedGenerator();
    assert.equal(described.data.did, document.id);
  } finally {
    await own.end();
  }
});

for (const limit of LIMITS) {
  for (const feed of PUBLIC_FEEDS) {
    test(`${feed} by pages of ${limit} returns each post once in order`, async () => {
      const items = await whole(page, { feed: at(feed), limit });
      assert.deepEqual(posts(items), shown(ITEMS[feed]));
    });
  }
}

test('the default page size is 50 posts', async () => {
  const { feed, cursor } = await page({ feed: at('trade-listings') });
  assert.deepEqual([feed.length, typeof cursor], [50, 'string']);
});

const FILTERS = [
  ['a set', { set: 'base1' }],
  ['a set in other case and with spaces', { set: '  Base1 ' }, { set: 'base1' }],
  ['an unknown set', { set: 'nowhere' }],
  ['a label', { labels: 'rare' }, { labels: ['rare'] }],
  ['any of three labels', { labels: 'rare,HOLO,absent' }, { labels: ['rare', 'holo'] }],
  ['a label twice', { labels: 'rare,rare' }, { labels: ['rare'] }],
  ['a label that hides posts', { labels: 'spam' }, { labels: ['spam'] }],
  ['a set and labels', { set: 'neo-genesis', labels: 'rare,graded' },
    { set: 'neo-genesis', labels: ['rare', 'graded'] }],
];
for (const [what, params, model = params] of FILTERS) {
  for (const limit of LIMITS) {
    test(`a feed filtered by ${what} is complete by pages of ${limit}`, async () => {
      const items = await whole(filtered, { feed: at('showcase'), limit, ...params });
      assert.deepEqual(posts(items), shown(ITEMS.showcase, model));
    });
  }
}

test('repeated labels parameters equal a list', async () => {
  const ask = (labels) =>
    sidecar.ask(`/functions/getFeedSkeleton?feed=${encodeURIComponent(at('showcase'))}&${labels}`);
  const listed = await ask('labels=rare,holo');
  assert.equal((await ask('labels=holo&labels=rare')).text, listed.text);
});

test('a page that ends with the last post has no cursor', async () => {
  const count = shown(ITEMS['collection-posts']).length;
  const { feed, cursor } = await page({ feed: at('collection-posts'), limit: count });
  assert.deepEqual([feed.length, cursor], [count, undefined]);
});

test('concurrent inserts and deletes do not skip or repeat posts', async () => {
  const feed = 'card-reviews'; // this feed is empty so far
  const stays = Array.from({ length: 60 }, (_, number) => item(feed, number));
  const goes = stays.map((_, number) => item(feed, `${number}.5`));
  await sidecar.load([...stays, ...goes]);
  const late = [];
  const items = await whole(page, { feed: at(feed), limit: 7 }, async (seen) => {
    // Also deletes the very post that the cursor was made from.
    const last = goes.filter(({ post_uri }) => post_uri === seen.at(-1)?.post);
    const gone = [...last, ...goes.splice(late.length * 3, 1)].map(without);
    const when = minutes(10_000 + late.length);
    late.push(feedItem(feed, `new ${late.length}`, START + when));
    const between = feedItem(feed, `between ${late.length}`, START + when / 1000);
    await sidecar.load([...gone, late.at(-1), between]);
  });
  const seen = posts(items);
  assert.ok(late.length > 9, 'the posts came on too few pages');
  assert.equal(new Set(seen).size, seen.length, 'a post came twice');
  const staying = new Set(shown(stays));
  assert.deepEqual(seen.filter((post) => staying.has(post)), shown(stays), 'a post was missed');
  assert.ok(!late.some(({ post_uri }) => seen.includes(post_uri)), 'a page went backwards');
});

const REFUSED = [
  ['an unknown feed', { feed: at('no-such-feed') }, 'UnknownFeed'],
  ['a feed in other case', { feed: at('Showcase') }, 'UnknownFeed'],
  ['a feed of another publisher', { feed: feedUri('showcase', did('stranger')) }, 'UnknownFeed'],
  ['a post', { feed: `at://${SERVICE_DID}/app.bsky.feed.post/showcase` }, 'UnknownFeed'],
  ['not a URI', { feed: 'showcase' }, 'InvalidRequest'],
  ['a truncated URI', { feed: `at://${SERVICE_DID}` }, 'InvalidRequest'],
  ['a URI with a fragment', { feed: `${at('showcase')}#top` }, 'InvalidRequest'],
  ['a page of zero', { feed: at('showcase'), limit: 0 }, 'InvalidRequest'],
  ['a page of too many', { feed: at('showcase'), limit: 101 }, 'InvalidRequest'],
  ['an invalid cursor', { feed: at('showcase'), cursor: 'first' }, 'InvalidRequest'],
];
for (const [what, params, name] of REFUSED) {
  test(`${what} is the client's ${name}`, async () => {
    const error = await agent.app.bsky.feed.getFeedSkeleton(params).catch((error) => error);
    assert.ok(error instanceof XRPCError, `${error}`);
    assert.deepEqual([error.status, error.error], [400, name], error.message);
    const { UnknownFeedError } = AppBskyFeedGetFeedSkeleton;
    assert.equal(error instanceof UnknownFeedError, name === 'UnknownFeed');
    assert.ok(error.message.length > 0, 'nothing is said to the reader');
  });
}

test('an unknown method is not implemented', async () => {
  const error = await agent.app.bsky.actor.getProfile({ actor: did('viewer') }).catch((e) => e);
  assert.ok(error instanceof XRPCError, `${error}`);
  assert.deepEqual([error.status, error.error], [501, 'MethodNotImplemented']);
});

test('a cursor is valid only for its feed and filters', async () => {
  const params = { feed: at('showcase'), limit: 7 };
  const { cursor } = await filtered({ ...params, set: 'base1' });
  await filtered({ ...params, set: 'BASE1', limit: 50, cursor });
  const others = [
    { ...params, feed: at('trade-listings'), set: 'base1' },
    { ...params, set: 'neo-genesis' },
    { ...params, set: 'base1', labels: 'rare' },
    params,
  ];
  for (const other of others) {
    const query = new URLSearchParams({ ...other, cursor });
    const answer = await sidecar.ask(`/functions/getFeedSkeleton?${query}`);
    assert.deepEqual([answer.status, answer.json.error], [400, 'InvalidRequest'], `${query}`);
  }
});

test('a tampered cursor is refused or moved, never a server error', async () => {
  const { cursor } = await page({ feed: at('showcase'), limit: 7 });
  const letters = [...cursor];
  const head = cursor.slice(0, 12);
  const none = [head, `${cursor}=`, `${cursor} `, `+${cursor}`, 'A'.repeat(24), 'A'.repeat(4000)];
  for (const bad of none) {
    const error = await refused({ feed: at('showcase'), limit: 7, cursor: bad });
    assert.deepEqual([error.status, error.error], [400, 'InvalidRequest'], bad);
  }
  const changed = letters.flatMap((letter, place) => [
    letters.with(place, letter === 'A' ? 'B' : 'A').join(''),
    cursor.slice(0, place + 1),
  ]);
  const all = new Set(shown(ITEMS.showcase));
  for (const other of [...changed, cursor + cursor]) {
    const query = new URLSearchParams({ feed: at('showcase'), limit: 7, cursor: other });
    const answer = await sidecar.ask(`/xrpc/${NSID}?${query}`);
    if (answer.status === 200) {
      for (const { post } of answer.json.feed) assert.ok(all.has(post), `${post} is not shown`);
    } else {
      assert.deepEqual([answer.status, answer.json.error], [400, 'InvalidRequest'], other);
    }
  }
});

test('HEAD returns the headers of GET, and no body', async () => {
  const path = `/xrpc/${NSID}?feed=${encodeURIComponent(at('showcase'))}`;
  const get = await sidecar.ask(path);
  const head = await sidecar.ask(path, { method: 'HEAD' });
  assert.deepEqual([head.status, head.text], [200, '']);
  for (const name of ['content-type', 'content-length', 'cache-control']) {
    assert.equal(head.headers.get(name), get.headers.get(name), name);
  }
  assert.equal(
    get.headers.get('cache-control'),
    'public, max-age=30, s-maxage=30, stale-while-revalidate=60',
  );
});

test('equivalent requests get the same response', async () => {
  const feed = at('showcase');
  const encoded = encodeURIComponent(feed);
  const all = [...feed].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join('');
  const { text } = await sidecar.ask(`/xrpc/${NSID}?feed=${feed}&limit=7`);
  const same = [
    `/functions/getFeedSkeleton?feed=${encoded}&limit=7`,
    `/xrpc/${NSID}?limit=7&feed=${all}`,
    `/xrpc/${NSID}?feed=${encoded}&limit=7&cursor=&set=&labels=`,
    `/xrpc/${NSID}?feed=${encoded}&limit=7&unknown=1&unknown=2&lang=en`,
    `/xrpc/${NSID}?%66eed=${encoded}&limit=%37`,
  ];
  for (const path of same) {
    const answer = await sidecar.ask(path);
    assert.deepEqual([answer.status, answer.text], [200, text], path);
  }
});

test('repeated parameters other than labels are refused', async () => {
  const feed = encodeURIComponent(at('showcase'));
  const twice = ['limit=7&limit=7', 'cursor=a&cursor=a', 'set=base1&set=base1', `feed=${feed}`];
  for (const more of twice) {
    const answer = await sidecar.ask(`/xrpc/${NSID}?feed=${feed}&${more}`);
    assert.deepEqual([answer.status, answer.json.error], [400, 'InvalidRequest'], more);
  }
});

for (const limit of LIMITS) {
  test(`follow suggestions by pages of ${limit} are unfollowed users, best first`, async () => {
    const headers = { authorization: `Bearer ${session}` };
    const read = (params) => page(params, headers);
    const items = await whole(read, { feed: at(PERSONAL_FEED), limit });
    const expected = ACTORS.filter((actor) => !FOLLOWED.includes(actor));
    assert.deepEqual(
      items.map(({ feedContext }) => feedContext),
      expected.map((actor) => `${actor} same_sets`),
    );
    for (const { post, feedContext } of items) {
      assert.ok(post.startsWith(`at://${feedContext.split(' ')[0]}/app.bsky.feed.post/`), post);
    }
  });
}

test('follow suggestions stay one list during an update', async () => {
  const headers = { authorization: `Bearer ${session}` };
  let round = 0;
  const items = await whole(
    (params) => page(params, headers),
    { feed: at(PERSONAL_FEED), limit: 7 },
    async () => {
      round += 1;
      const others = ACTORS.toReversed().slice(round);
      await sidecar.load([suggestions(did('viewer'), Date.now() + round, others)]);
    },
  );
  const expected = ACTORS.filter((actor) => !FOLLOWED.includes(actor));
  assert.deepEqual(items.map(({ feedContext }) => feedContext.split(' ')[0]), expected);
});

test('follow suggestions require a session and are not cached', async () => {
  const error = await refused({ feed: at(PERSONAL_FEED) });
  assert.deepEqual([error.status, error.error], [401, 'AuthenticationRequired']);
  assert.equal(error.headers['www-authenticate'], 'Bearer');
  const path = `/xrpc/${NSID}?feed=${encodeURIComponent(at(PERSONAL_FEED))}`;
  const headers = { authorization: `Bearer ${session}` };
  for (const answer of [await sidecar.ask(path), await sidecar.ask(path, { headers })]) {
    assert.equal(answer.headers.get('cache-control'), 'private, no-store');
    assert.match(answer.headers.get('vary'), /\bAuthorization\b/i);
  }
});
