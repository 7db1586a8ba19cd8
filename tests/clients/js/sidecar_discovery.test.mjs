// What crawlers read first: robots.txt and the sitemap, read by third-party parsers.
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { after, before, test } from 'node:test';
import robotsParser from 'robots-parser';
import { ErrorLevel, XMLToSitemapIndexStream, XMLToSitemapItemStream } from 'sitemap';
import { iso, minutes, page } from './sidecar_content.mjs';
import { BASE_URL, Sidecar } from './sidecar_world.mjs';

const START = Date.parse('2026-03-01T00:00:00Z');
/** The pages in a sitemap before it becomes an index of several: with home, 45,000 URLs. */
const PAGE = 44_999;

/** URLs that break naive documents: as they are stored, and as they must be read. */
const HARD = [
  ['cards/salt-&-pepper?a=1&b=2', 'cards/salt-&-pepper?a=1&b=2'],
  ["cards/o'brien", "cards/o'brien"],
  ['cards/pok%C3%A9', 'cards/pok%C3%A9'],
];
const pages = (from, to) =>
  Array.from({ length: to - from }, (_, number) => {
    const name = from + number;
    const images = Array.from({ length: name % 3 }, (_, image) =>
      `https://media.cards.example/${name}/${image}.jpg?w=600&h=800`,
    );
    return page(`${BASE_URL}/cards/${name}`, START + minutes(name), { images });
  });

let sidecar;
before(async () => {
  sidecar = await Sidecar.start({
    content: [
      ...pages(0, 200),
      ...HARD.map(([path]) => page(`${BASE_URL}/${path}`, START)),
      page(`${BASE_URL}/private`, START, { indexable: false }),
    ],
    settings: {
      'sidecar.robots': {
        disallow: ['/auth', '/settings', '/search'],
        blocked_agents: ['HungryBot'],
      },
    },
  });
});
after(() => sidecar?.end());

/** Everything in an XML document, by a strict parser. */
function parsed(text, Parser) {
  const parser = new Parser({ level: ErrorLevel.THROW, logger: false });
  return Readable.from([text]).pipe(parser).toArray();
}

async function sitemap(path, own = sidecar) {
  const { status, headers, text } = await own.ask(path);
  assert.equal(status, 200, text);
  assert.equal(headers.get('content-type'), 'application/xml; charset=utf-8');
  assert.equal(headers.get('cache-control'), 'public, max-age=3600');
  assert.match(headers.get('etag'), /^"[^"]+"$/);
  return text;
}

async function robots(own = sidecar) {
  const { status, headers, text } = await own.ask('/robots.txt');
  assert.equal(status, 200, text);
  assert.equal(headers.get('content-type'), 'text/plain; charset=utf-8');
  return robotsParser(`${BASE_URL}/robots.txt`, text);
}

const URLS = [
  ['/', true],
  ['/cards/1', true],
  ['/sitemap.xml', true],
  ['/functions/seo-sitemap', true],
  ['/functions/seo-sitemap?page=2', true],
  ['/functions/podcast-rss-feed?did=did:plc:abc', true],
  ['/functions/getFeedSkeleton?feed=x', false],
  ['/xrpc/app.bsky.feed.getFeedSkeleton?feed=x', false],
  ['/functions/health-check', false],
  ['/functions/age-verification-session', false],
  ['/functions/age-verifier-webhook', false],
  ['/auth', false],
  ['/auth/callback', false],
  ['/settings/profile', false],
  ['/search?q=holo', false],
  ['/research', true],
];
test('robots.txt allows public paths and disallows the rest', async () => {
  const rules = await robots();
  for (const [path, open] of URLS) {
    assert.equal(rules.isAllowed(BASE_URL + path, 'SomeBot'), open, path);
  }
});

test('a disallowed agent may read nothing', async () => {
  const rules = await robots();
  for (const [path] of URLS) {
    assert.equal(rules.isAllowed(BASE_URL + path, 'HungryBot/1.0'), false, path);
  }
});

test('robots.txt names the sitemap', async () => {
  assert.deepEqual((await robots()).getSitemaps(), [`${BASE_URL}/sitemap.xml`]);
});

test('an instance that must not be indexed disallows everything', async () => {
  const own = await Sidecar.start({ settings: { 'sidecar.robots': { indexing: false } } });
  try {
    const rules = await robots(own);
    for (const [path] of URLS) {
      assert.equal(rules.isAllowed(BASE_URL + path, 'SomeBot'), false, path);
    }
    // With an empty store the sitemap lists only the home page.
    const items = await parsed(await sitemap('/sitemap.xml', own), XMLToSitemapItemStream);
    assert.deepEqual(items.map(({ url }) => url), [`${BASE_URL}/`]);
  } finally {
    await own.end();
  }
});

test('the sitemap lists home and pages with time and images', async () => {
  const items = await parsed(await sitemap('/sitemap.xml'), XMLToSitemapItemStream);
  assert.equal(items[0].url, `${BASE_URL}/`);
  const expected = [
    ...pages(0, 200),
    ...HARD.map(([, path]) => page(`${BASE_URL}/${path}`, START)),
  ];
  assert.deepEqual(
    items.slice(1).map(({ url, lastmod, img }) => ({
      url,
      lastmod: Date.parse(lastmod),
      images: img.map((image) => image.url),
    })),
    expected.map(({ loc, lastmod_at, images }) => ({
      url: loc,
      lastmod: Date.parse(lastmod_at),
      images,
    })),
  );
});

test('both sitemap URLs serve the same, and 304 if unchanged', async () => {
  const text = await sitemap('/sitemap.xml');
  assert.equal(await sitemap('/functions/seo-sitemap'), text);
  for (const path of ['/sitemap.xml', '/robots.txt']) {
    const first = await sidecar.ask(path);
    const headers = { 'if-none-match': first.headers.get('etag') };
    const again = await sidecar.ask(path, { headers });
    assert.deepEqual([again.status, again.text], [304, ''], path);
  }
});

for (const [number, status, name] of [
  ['2', 404, 'NotFound'],
  ['999999999', 404, 'NotFound'],
  ['0', 400, 'InvalidRequest'],
  ['-1', 400, 'InvalidRequest'],
  ['one', 400, 'InvalidRequest'],
  ['1.5', 404, 'NotFound'],
  ['1.0', 400, 'InvalidRequest'],
]) {
  test(`page ${number} of the sitemap does not exist: ${status}`, async () => {
    const answer = await sidecar.ask(`/functions/seo-sitemap?page=${number}`);
    assert.deepEqual([answer.status, answer.json?.error], [status, name], answer.text);
  });
}

test('one URL too many makes the sitemap an index', async () => {
  const own = await Sidecar.start({ content: pages(0, PAGE) });
  try {
    const one = await parsed(await sitemap('/sitemap.xml', own), XMLToSitemapItemStream);
    assert.equal(one.length, PAGE + 1);
    await own.load(pages(PAGE, PAGE + 1));
    const index = await parsed(await sitemap('/sitemap.xml', own), XMLToSitemapIndexStream);
    const address = `${BASE_URL}/sitemap.xml?page=`;
    assert.deepEqual(index.map(({ url }) => url), [`${address}1`, `${address}1.2`]);
    const urls = [];
    for (const { url, lastmod } of index) {
      const text = await sitemap(url.slice(BASE_URL.length), own);
      const items = await parsed(text, XMLToSitemapItemStream);
      assert.ok(items.length > PAGE / 3, `${items.length} URLs of ${url}`);
      const times = items.slice(items[0].lastmod ? 0 : 1).map((item) => Date.parse(item.lastmod));
      assert.equal(Date.parse(lastmod), Math.max(...times), `the newest URL of ${url}`);
      urls.push(...items.map((item) => item.url));
    }
    const all = [`${BASE_URL}/`, ...pages(0, PAGE + 1).map(({ loc }) => loc)];
    assert.deepEqual(urls, all);
  } finally {
    await own.end();
  }
});
