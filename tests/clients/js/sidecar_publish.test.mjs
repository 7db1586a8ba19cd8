// The script of conf/feeds does what its page promises, against a repository that the official server
// package checks by the protocol's lexicons.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmod, copyFile, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { AppBskyFeedGenerator, schemas } from '@atproto/api';
import { AuthRequiredError, InvalidRequestError, createServer } from '@atproto/xrpc-server';
import { PERSONAL_FEED, PUBLIC_FEEDS, did } from './sidecar_content.mjs';
import { Child } from './relay_world.mjs';
import { SERVICE_DID, Sidecar, freshSecret } from './sidecar_world.mjs';

const FOLDER = new URL('../../../conf/feeds/', import.meta.url);
const COLLECTION = 'app.bsky.feed.generator';
const FEEDS = [...PUBLIC_FEEDS, PERSONAL_FEED];
const AUTHOR = did('author');

/** The server of one account, whose records are in `records`. */
class Repository {
  records = new Map();
  calls = [];
  password = freshSecret();
  token = freshSecret();

  async start() {
    const server = createServer(schemas);
    const session = { accessJwt: this.token, refreshJwt: this.token, did: AUTHOR, handle: 'author.example' };
    this.method(server, 'com.atproto.server.createSession', ({ input }) => {
      const isOwner = input.body.identifier === 'author.example'
        && input.body.password === this.password;
      if (!isOwner) throw new AuthRequiredError('wrong identifier or password');
      return session;
    });
    this.method(server, 'com.atproto.server.deleteSession', ({ req }) => void this.check(req));
    this.method(server, 'com.atproto.repo.getRecord', ({ params }) => {
      const value = this.records.get(params.rkey);
      if (!value) throw new InvalidRequestError('no such record', 'RecordNotFound');
      return { uri: this.uri(params), value };
    });
    this.method(server, 'com.atproto.repo.putRecord', ({ req, input: { body } }) => {
      this.check(req, body);
      const checked = AppBskyFeedGenerator.validateRecord(body.record);
      if (!checked.success) throw new InvalidRequestError(checked.error.message, 'InvalidRecord');
      this.records.set(body.rkey, body.record);
      return { uri: this.uri(body), cid: 'bafyreidykglsfhoixmivffc5uwhcgshx4j465xwqntbmu43nb2dzqwfvae' };
    });
    this.method(server, 'com.atproto.repo.deleteRecord', ({ req, input: { body } }) => {
      this.check(req, body);
      this.records.delete(body.rkey);
      return {};
    });
    this.http = server.router.listen(0, '127.0.0.1');
    await once(this.http, 'listening');
    this.url = `http://127.0.0.1:${this.http.address().port}`;
  }

  method(server, name, answer) {
    server.method(name, (call) => {
      this.calls.push(name.split('.').at(-1));
      const body = answer(call);
      return body && { encoding: 'application/json', body };
    });
  }

  /** Only a session of the account writes, and only its own feeds. */
  check(req, body) {
    if (req.headers.authorization !== `Bearer ${this.token}`) throw new AuthRequiredError('no session');
    if (!body) return;
    assert.deepEqual([body.repo, body.collection], [AUTHOR, COLLECTION]);
  }

  uri = ({ rkey }) => `at://${AUTHOR}/${COLLECTION}/${rkey}`;
}

let dir;
let repository;
let sidecar;

before(async () => {
  repository = new Repository();
  await repository.start();
  sidecar = await Sidecar.start({ settings: { 'sidecar.feeds': { publisher_did: AUTHOR } } });
  dir = await mkdtemp(join(tmpdir(), 'portcullis-feeds-'));
  await copyFile(new URL('publish.mjs', FOLDER), join(dir, 'publish.mjs'));
  await symlink(fileURLToPath(new URL('node_modules', import.meta.url)), join(dir, 'node_modules'));
  await writeFile(join(dir, 'password'), `${repository.password}\n`, { mode: 0o600 });
});
beforeEach(() => {
  repository.records.clear();
  repository.calls = [];
});
after(async () => {
  repository.http.close();
  repository.http.closeAllConnections();
  await sidecar.end();
  await rm(dir, { recursive: true, force: true });
});

/** Runs the script. Returns its exit code and output, which holds no secret. */
async function script(command, env = {}) {
  const child = new Child('node', [join(dir, 'publish.mjs'), command], {
    ORIGIN: sidecar.url,
    SERVICE: repository.url,
    IDENTIFIER: 'author.example',
    PASSWORD_FILE: join(dir, 'password'),
    ...env,
  });
  const code = await child.ended;
  for (const secret of [repository.password, repository.token]) {
    assert.ok(!child.output.includes(secret), 'the output holds a secret');
  }
  return { code, output: child.output };
}

test('each feed gets a valid record of its own', async () => {
  const { code, output } = await script('publish');
  assert.equal(code, 0, output);
  assert.deepEqual([...repository.records.keys()].sort(), [...FEEDS].sort());
  for (const [name, record] of repository.records) {
    assert.equal(record.did, SERVICE_DID, name);
    assert.ok(record.displayName.length <= 24 && record.displayName !== name, name);
    assert.ok(output.includes(`published at://${AUTHOR}/${COLLECTION}/${name}\n`), output);
  }
  assert.deepEqual([repository.calls[0], repository.calls.at(-1)], ['createSession', 'deleteSession']);
});

test('publishing again keeps the date and the avatar', async () => {
  await script('publish');
  const first = repository.records.get('journals');
  const createdAt = '2020-01-01T00:00:00.000Z';
  const labels = { $type: 'com.atproto.label.defs#selfLabels', values: [{ val: 'x' }] };
  repository.records.set('journals', { ...first, createdAt, labels, displayName: 'Old' });
  assert.equal((await script('publish')).code, 0);
  assert.deepEqual(repository.records.get('journals'), { ...first, createdAt, labels });
});

test('unpublishing deletes our records and no others', async () => {
  await script('publish');
  const other = { ...repository.records.get('journals'), did: 'did:web:other.example' };
  repository.records.set('journals', other);
  const { code, output } = await script('unpublish');
  assert.equal(code, 0, output);
  assert.deepEqual([...repository.records.keys()], ['journals']);
  assert.ok(output.includes('unpublished showcase\n') && output.includes('not published journals\n'));
});

test('nothing is written that the account does not own', async () => {
  const other = await Sidecar.start();
  const { code, output } = await script('publish', { ORIGIN: other.url });
  await other.end();
  assert.equal(code, 1);
  assert.ok(output.includes(`set sidecar.feeds.publisher_did = "${AUTHOR}"`), output);
  assert.equal(repository.records.size, 0);
});

test('a mistake in the settings is named', async () => {
  const open = join(dir, 'open');
  const wrong = join(dir, 'wrong');
  await writeFile(open, repository.password);
  await chmod(open, 0o644);
  await writeFile(wrong, 'guess', { mode: 0o600 });
  for (const [command, env, said] of [
    ['publish', { PASSWORD_FILE: open }, 'is open to others: chmod 600'],
    ['publish', { PASSWORD_FILE: wrong }, 'wrong identifier or password'],
    ['publish', { IDENTIFIER: '' }, 'set IDENTIFIER in the environment'],
    ['push', {}, 'usage: node publish.mjs publish|unpublish'],
  ]) {
    const { code, output } = await script(command, env);
    assert.equal(code, 1, said);
    assert.ok(output.includes(said), `${output}: ${said}`);
    assert.ok(!repository.calls.includes('putRecord'));
  }
});

test('the page shows how the script is run', async () => {
  const page = await readFile(new URL('README.md', FOLDER), 'utf8');
  const text = await readFile(new URL('publish.mjs', FOLDER), 'utf8');
  for (const name of ['ORIGIN', 'IDENTIFIER', 'PASSWORD_FILE', 'SERVICE']) {
    assert.ok(page.includes(name) && text.includes(`setting('${name}'`), name);
  }
});
