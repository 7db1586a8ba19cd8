// Service tokens, made as a personal data server makes them and corrupted in every way that has an
// error name, for the one feed that needs to know its viewer.
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { P256Keypair, Secp256k1Keypair } from '@atproto/crypto';
import { IdResolver } from '@atproto/identity';
import { createServiceJwt, verifyJwt } from '@atproto/xrpc-server';
import {
  PERSONAL_FEED,
  account,
  did,
  feedItem,
  feedUri,
  follow,
  minutes,
  suggestions,
  user,
} from './sidecar_content.mjs';
import { Directory, documentOf } from './sidecar_directory.mjs';
import { SERVICE_DID, Sidecar } from './sidecar_world.mjs';

const LXM = 'app.bsky.feed.getFeedSkeleton';
const PATH = `/xrpc/${LXM}?feed=${encodeURIComponent(feedUri(PERSONAL_FEED, SERVICE_DID))}`;
const PUBLIC = `/xrpc/${LXM}?feed=${encodeURIComponent(feedUri('showcase', SERVICE_DID))}`;
const ORDERS = {
  ES256K: 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n,
  ES256: 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n,
};

let directory;
let sidecar;
/** Three viewers: two in the directory, one with each type of key, and one on a did:web host. */
const readers = {};

before(async () => {
  directory = await Directory.start();
  readers.es256k = { did: did('reader k'), keypair: await Secp256k1Keypair.create() };
  readers.es256 = { did: did('reader p'), keypair: await P256Keypair.create() };
  readers.web = { did: directory.webDid, keypair: await Secp256k1Keypair.create() };
  for (const { did, keypair } of Object.values(readers)) {
    directory.put(did, documentOf(did, keypair));
  }
  sidecar = await Sidecar.start({
    content: [
      feedItem('showcase', '1', Date.parse('2026-05-01T00:00:00Z')),
      suggestions('*', Date.now() - minutes(5), [did('one'), did('two')]),
      ...Object.values(readers).map((reader) => follow(reader.did, did('one'))),
      account('no-did', { did: null }),
      account('banned', { status: 'banned' }),
    ],
    settings: { 'sidecar.session': { plc_url: directory.url, localhost_dids: true } },
  });
});
after(async () => {
  await sidecar?.end();
  await directory?.end();
});

/** A viewer that only this test knows, with or without an entry in the directory. */
async function stranger(name, entry) {
  const reader = { did: did(name), keypair: await Secp256k1Keypair.create() };
  directory.put(reader.did, entry ?? documentOf(reader.did, reader.keypair));
  return reader;
}

/** A token as the protocol's own server library makes it. */
const token = ({ did: iss, keypair }, more = {}) =>
  createServiceJwt({ iss, aud: SERVICE_DID, lxm: LXM, keypair, ...more });

const encode = (part) =>
  Buffer.from(typeof part === 'string' ? part : JSON.stringify(part)).toString('base64url');

/** The same without that library, with any header, claims, and signature encoding. */
async function forged({ did: iss, keypair }, { header, claims, shape = (it) => it, by } = {}) {
  const now = Math.floor(Date.now() / 1000);
  const all = { iat: now, exp: now + 60, iss, aud: SERVICE_DID, lxm: LXM, jti: 'a1', ...claims };
  const start = [
    encode({ typ: 'JWT', alg: keypair.jwtAlg, ...header }),
    encode(typeof claims === 'string' ? claims : all),
  ].join('.');
  const signature = shape(Buffer.from(await (by ?? keypair).sign(Buffer.from(start))));
  return `${start}.${Buffer.from(signature).toString('base64url')}`;
}

const ask = (jwt, path = PATH, scheme = 'Bearer') =>
  sidecar.ask(path, { headers: { authorization: `${scheme} ${sidecar.keepToken(jwt)}` } });

async function accepted(jwt, why) {
  const { status, text, json } = await ask(jwt);
  assert.equal(status, 200, `${why ?? ''} ${text}`);
  // Accounts that this viewer already follows are not suggested: the viewer was recognized.
  assert.deepEqual(json.feed.map(({ feedContext }) => feedContext), [`${did('two')} same_sets`]);
}

async function refused(jwt, name, status = 401) {
  const answer = await ask(jwt);
  assert.deepEqual([answer.status, answer.json.error], [status, name], answer.text);
  if (status === 401) assert.equal(answer.headers.get('www-authenticate'), 'Bearer');
  assert.equal(answer.headers.get('cache-control'), 'private, no-store');
  for (const part of jwt.split('.').filter((part) => part.length > 8)) {
    assert.ok(!answer.text.includes(part), 'a part of the token came back');
  }
}

for (const [kind, what] of [
  ['es256k', 'a did:plc with a secp256k1 key'],
  ['es256', 'a did:plc with a P-256 key'],
  ['web', 'a did:web of localhost'],
]) {
  test(`a token of ${what} is accepted, and by the protocol's verifier`, async () => {
    const reader = readers[kind];
    const jwt = await token(reader);
    const resolver = new IdResolver({ plcUrl: directory.url });
    const keyOf = (iss) => resolver.did.resolveAtprotoKey(iss);
    const claims = await verifyJwt(jwt, SERVICE_DID, LXM, keyOf);
    assert.equal(claims.iss, reader.did);
    await accepted(jwt);
    await accepted(jwt, 'a second time');
    const named = await token(reader, { aud: `${SERVICE_DID}#bsky_fg` });
    await accepted(named, 'with the service named');
  });
}

test('the scheme is case-insensitive', async () => {
  for (const scheme of ['bearer', 'BEARER', 'bEaReR']) {
    assert.equal((await ask(await token(readers.es256k), PATH, scheme)).status, 200, scheme);
  }
});

test('a mirrored signature (n - s) is accepted', async () => {
  for (const reader of [readers.es256k, readers.es256]) {
    const order = ORDERS[reader.keypair.jwtAlg];
    const mirror = (signature) => {
      const s = (order - BigInt(`0x${signature.toString('hex', 32)}`)).toString(16);
      return Buffer.from(signature.toString('hex', 0, 32) + s.padStart(64, '0'), 'hex');
    };
    await accepted(await forged(reader, { shape: mirror }), reader.keypair.jwtAlg);
  }
});

/** A signature in DER, as in X.509, which JSON Web Tokens do not use. */
function der(signature) {
  const integer = (bytes) => {
    const hex = BigInt(`0x${bytes.toString('hex')}`).toString(16);
    const even = hex.padStart(hex.length + (hex.length % 2), '0');
    const value = Buffer.from(/^[89a-f]/.test(even) ? `00${even}` : even, 'hex');
    return Buffer.concat([Buffer.from([2, value.length]), value]);
  };
  const both = Buffer.concat([integer(signature.subarray(0, 32)), integer(signature.subarray(32))]);
  return Buffer.concat([Buffer.from([0x30, both.length]), both]);
}

const flipped = (signature) => signature.map((byte, at) => (at === 40 ? byte ^ 1 : byte));
const now = () => Math.floor(Date.now() / 1000);
const made = (more) => () => token(readers.es256k, more);
const mangled = (change) => async () => change(await token(readers.es256k));
const by = (did) => token({ ...readers.es256k, did });
const K = (change) => () => forged(readers.es256k, change);
const P = (change) => () => forged(readers.es256, change);

const BROKEN = [
  ['of one word', 'BadJwt', () => 'aaaaaaaaaaaaaaaaaaaa'],
  ['of two parts', 'BadJwt', mangled((jwt) => jwt.slice(0, jwt.lastIndexOf('.')))],
  ['of four parts', 'BadJwt', mangled((jwt) => `${jwt}.AAAA`)],
  ['whose header is no JSON', 'BadJwt', mangled((jwt) => jwt.replace(/^[^.]+/, encode('{alg')))],
  ['whose claims are no text', 'BadJwt', mangled((jwt) => jwt.replace(/\.[^.]+\./, '.++++.'))],
  ['whose claims are a list', 'BadJwt', K({ claims: '["iss"]' })],
  ['without an end', 'BadJwt', K({ claims: { exp: undefined } })],
  ['whose end is text', 'BadJwt', K({ claims: { exp: 'tomorrow' } })],
  ['of the type at+jwt', 'BadJwtType', K({ header: { typ: 'at+jwt' } })],
  ['of the type refresh+jwt', 'BadJwtType', K({ header: { typ: 'refresh+jwt' } })],
  ['of the type dpop+jwt', 'BadJwtType', P({ header: { typ: 'dpop+jwt' } })],
  ['that ended an hour ago', 'JwtExpired', made({ iat: now() - 3660, exp: now() - 3600 })],
  ['that ended long ago', 'JwtExpired', P({ claims: { exp: 1 } })],
  ['for another service', 'BadJwtAudience', made({ aud: 'did:web:api.cards.example' })],
  ['for another part of this one', 'BadJwtAudience', made({ aud: `${SERVICE_DID}#atproto_pds` })],
  ['for one whose name begins so', 'BadJwtAudience', made({ aud: `${SERVICE_DID}.evil.example` })],
  ['for the address of this one', 'BadJwtAudience', made({ aud: 'https://cards.example' })],
  ['for another method', 'BadJwtLexiconMethod', made({ lxm: 'app.bsky.feed.getFeed' })],
  ['for no method', 'BadJwtLexiconMethod', made({ lxm: null })],
  ['for any method', 'BadJwtLexiconMethod', made({ lxm: '*' })],
  ['of a key and no account', 'BadJwtIss', () => by(readers.es256k.keypair.did())],
  ['of a part of an account', 'BadJwtIss', () => by(`${readers.es256k.did}#atproto`)],
  ['of a DID of an unknown kind', 'BadJwtIss', () => by('did:example:123456789')],
  ['of a did:web with a path', 'BadJwtIss', () => by(`${readers.web.did}:users:alice`)],
  ['of a did:plc that is too short', 'BadJwtIss', () => by('did:plc:abc')],
  ['signed by somebody else', 'BadJwtSignature', async () =>
    forged(readers.es256k, { by: await Secp256k1Keypair.create() })],
  ['signed with a key of another kind', 'BadJwtSignature', () =>
    forged(readers.es256, { by: readers.es256k.keypair })],
  ['that names the other curve', 'BadJwtSignature', K({ header: { alg: 'ES256' } })],
  ['that names the curve of the other', 'BadJwtSignature', P({ header: { alg: 'ES256K' } })],
  ['with a bit of a signature turned', 'BadJwtSignature', K({ shape: flipped })],
  ['with a bit of the other kind turned', 'BadJwtSignature', P({ shape: flipped })],
  ['with a signature in DER', 'BadJwtSignature', K({ shape: der })],
  ['with the other kind in DER', 'BadJwtSignature', P({ shape: der })],
  ['with a signature cut short', 'BadJwtSignature', K({ shape: (it) => it.subarray(1) })],
  ['with a signature of noughts', 'BadJwtSignature', K({ shape: () => Buffer.alloc(64) })],
  ['whose claims are of another', 'BadJwtSignature', async () => {
    const [header, , signature] = (await token(readers.es256k)).split('.');
    const [, claims] = (await token(readers.es256k)).split('.');
    return [header, claims, signature].join('.');
  }],
];
for (const [what, name, make] of BROKEN) {
  test(`a token ${what} is ${name}`, async () => refused(await make(), name));
}

const UNSIGNED = ['none', 'None', 'HS256', 'RS256', 'EdDSA'];
for (const alg of UNSIGNED) {
  test(`a service token with ${alg} is never accepted`, async () => {
    const shape = (signature) => (/none/i.test(alg) ? Buffer.alloc(0) : signature);
    await refused(await forged(readers.es256k, { header: { alg }, shape }), 'BadJwtType');
  });
}

test("the platform's secret cannot sign for a network account", async () => {
  const jwt = await sidecar.session(user('somebody'), {
    iss: readers.es256k.did,
    aud: SERVICE_DID,
    lxm: LXM,
  });
  await refused(jwt, 'BadJwtType');
});

test('a token of an unknown DID is refused', async () => {
  await refused(await token(await stranger('nobody', 404)), 'BadJwtIss');
});

test('an unavailable directory is reported as 503', async () => {
  const known = await stranger('known before');
  await acceptedStranger(known);
  for (const status of [500, 503, 429]) {
    const unknown = await stranger(`unknown ${status}`, status);
    const answer = await ask(await token(unknown));
    assert.deepEqual([answer.status, answer.json.error], [503, 'KeysUnavailable'], answer.text);
    assert.match(answer.headers.get('retry-after'), /^\d+$/);
    directory.put(known.did, status);
    await acceptedStranger(known);
  }
});

test('a redirect of the directory is not followed', async () => {
  const reader = await stranger('elsewhere', 302);
  assert.equal((await ask(await token(reader))).status, 401);
  assert.ok(!directory.requested.includes('/elsewhere'), 'it was followed');
});

/** Accepted, for a viewer who follows nobody. */
async function acceptedStranger(reader) {
  const { status, text, json } = await ask(await token(reader));
  assert.deepEqual([status, json.feed?.length], [200, 2], text);
}

const DOCUMENTS = [
  ['another id', () => ({ id: did('other') })],
  ['no key', () => ({ verificationMethod: [] })],
  ['a key for something else', (id, { verificationMethod: [method] }) => ({
    verificationMethod: [{ ...method, id: `${id}#other` }],
  })],
  ['a key of somebody else', async (id) => ({
    verificationMethod: documentOf(id, await Secp256k1Keypair.create()).verificationMethod,
  })],
  ['an invalid key', (id, { verificationMethod: [method] }) => ({
    verificationMethod: [{ ...method, publicKeyMultibase: 'zzzz' }],
  })],
];
for (const [what, change] of DOCUMENTS) {
  test(`a document with ${what} is refused`, async () => {
    const reader = await stranger(`document with ${what}`);
    const document = documentOf(reader.did, reader.keypair);
    directory.put(reader.did, { ...document, ...(await change(reader.did, document)) });
    const answer = await ask(await token(reader));
    assert.equal(answer.status, 401, answer.text);
  });
}

test('a changed key is found, and the old one is refused', async () => {
  const reader = await stranger('changes keys');
  await acceptedStranger(reader);
  const changed = { ...reader, keypair: await P256Keypair.create() };
  directory.put(changed.did, documentOf(changed.did, changed.keypair));
  await acceptedStranger(changed);
  await refused(await token(reader), 'BadJwtSignature');
  await acceptedStranger(changed);
});

test('one document fetch serves many concurrent tokens', async () => {
  const reader = await stranger('many at once');
  const jwt = await token(reader);
  const answers = await Promise.all(Array.from({ length: 50 }, () => ask(jwt)));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  const requested = directory.requested.filter((path) => path === `/${reader.did}`);
  assert.equal(requested.length, 1, `the directory was queried ${requested.length} times`);
});

test('a did:web never leads to an internal host', async () => {
  const strict = await Sidecar.start({
    settings: { 'sidecar.session': { plc_url: directory.url } },
  });
  try {
    const requested = directory.requested.length;
    const { port } = directory;
    const hosts = [
      'localhost',
      `localhost%3A${port}`,
      '127.0.0.1',
      `127.0.0.1%3A${port}`,
      '%5B%3A%3A1%5D',
      '0x7f000001',
      '2130706433',
      '169.254.169.254',
      '10.0.0.1',
      'localhost.',
      `cards.example%40localhost%3A${port}`,
      `localhost%3A${port}%2F..`,
    ];
    for (const host of hosts) {
      const jwt = strict.keepToken(await token({ ...readers.web, did: `did:web:${host}` }));
      const started = Date.now();
      const answer = await strict.ask(PATH, { headers: { authorization: `Bearer ${jwt}` } });
      assert.match(answer.json.error, /^(BadJwtIss|KeysUnavailable)$/, `${host}: ${answer.text}`);
      assert.ok(Date.now() - started < 4000, `${host} took too long`);
    }
    assert.equal(directory.requested.length, requested, 'the directory was reached through a did:web');
  } finally {
    await strict.end();
  }
});

const LONG = `Bearer ${'a'.repeat(8000)}`;
const GARBAGE = ['Bearer garbage', 'Bearer', 'Basic dXNlcjpwYXNz', 'x', LONG];
test('a public feed ignores the token', async () => {
  const plain = await sidecar.ask(PUBLIC);
  assert.equal(plain.json.feed.length, 1);
  const expired = await token(readers.es256k, { exp: 1 });
  for (const authorization of [...GARBAGE, `Bearer ${sidecar.keepToken(expired)}`]) {
    const answer = await sidecar.ask(PUBLIC, { headers: { authorization } });
    assert.deepEqual([answer.status, answer.text], [200, plain.text], authorization);
    for (const name of ['cache-control', 'vary', 'www-authenticate']) {
      assert.equal(answer.headers.get(name), plain.headers.get(name), name);
    }
  }
});

test('a value that is not a bearer token is ignored', async () => {
  for (const authorization of ['Basic dXNlcjpwYXNz', 'Bearer', 'token', '']) {
    const { status, json, text } = await sidecar.ask(PATH, { headers: { authorization } });
    assert.deepEqual([status, json.error], [401, 'AuthenticationRequired'], text);
  }
});

test('two tokens are refused', async () => {
  const jwt = sidecar.keepToken(await token(readers.es256k));
  const twice = ['Authorization', `Bearer ${jwt}`, 'Authorization', `Bearer ${jwt}`];
  const status = await new Promise((resolve, reject) => {
    const { hostname, port } = new URL(sidecar.url);
    const headers = ['Host', hostname, ...twice];
    request({ hostname, port, path: PATH, headers }, (answer) => {
      answer.resume().on('end', () => resolve(answer.statusCode));
    }).on('error', reject).end();
  });
  assert.equal(status, 401);
});

test('an unlinked or banned user has no such feed', async () => {
  for (const name of ['no-did', 'banned', 'unknown']) {
    const { status, json, text } = await ask(await sidecar.session(user(name)));
    assert.deepEqual([status, json.error], [403, 'Forbidden'], `${name} ${text}`);
  }
});
