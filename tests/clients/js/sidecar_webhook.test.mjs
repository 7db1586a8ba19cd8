// Age verification from the session to the verifier's event, with third-party signers, on each
// store.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { sign } from '@octokit/webhooks-methods';
import { account, iso, minutes, user } from './sidecar_content.mjs';
import { Sidecar, freshSecret } from './sidecar_world.mjs';

const WEBHOOK = '/functions/age-verifier-webhook';
const SESSION = '/functions/age-verification-session';
const HEADER = 'x-service-verifier-signature';
const LIMIT = 16_384;
const HOUR = minutes(60);

/** The signature that openssl makes, in hex. */
async function openssl(secret, body) {
  const child = spawn('openssl', ['dgst', '-sha256', '-hmac', secret]);
  child.stdin.end(body);
  const [, hex] = (await text(child.stdout)).match(/([0-9a-f]{64})\s*$/);
  return hex;
}

/** An event as the verifier sends it: exactly the seven members. */
const event = (subject, status, time, more = {}) => ({
  event_id: `evt_${randomUUID()}`,
  subject_ref: subject,
  status,
  age_band: status === 'verified' ? '18_plus' : null,
  verified_at: status === 'verified' ? iso(time) : null,
  expires_at: null,
  occurred_at: iso(time),
  ...more,
});

/** An hour ago; responses report times in whole seconds. */
const anHourAgo = () => Math.floor(Date.now() / 1000) * 1000 - HOUR;

const padded = (body, length) => body + ' '.repeat(length - Buffer.byteLength(body));

/** One POST to `url` with headers exactly as listed, and the body in one piece or in many. */
function raw(url, body, more, chunk) {
  const { hostname, port } = new URL(url);
  const length = chunk
    ? ['Transfer-Encoding', 'chunked']
    : ['Content-Length', `${Buffer.byteLength(body)}`];
  const headers = ['Host', hostname, 'Content-Type', 'application/json', ...length, ...more];
  return new Promise((resolve, reject) => {
    const options = { hostname, port, path: WEBHOOK, method: 'POST', headers };
    const sent = request(options, async (answer) => {
      const said = await text(answer);
      resolve({ status: answer.statusCode, json: JSON.parse(said), text: said });
    });
    sent.on('error', reject);
    const size = chunk ?? body.length;
    for (let at = 0; at < body.length; at += size) sent.write(body.slice(at, at + size));
    sent.end();
  });
}

for (const store of ['SQLite', 'PostgreSQL']) {
  describe(`on ${store}`, () => {
    let sidecar;

    before(async () => {
      sidecar = await Sidecar.start({
        postgres: store === 'PostgreSQL',
        content: [account('banned', { status: 'banned' })],
      });
    });
    after(() => sidecar?.end());

    /** Sends bytes with or without a signature header. */
    const send = (body, signature, more = {}) =>
      sidecar.ask(WEBHOOK, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          ...(signature !== undefined && { [HEADER]: signature }),
          ...more,
        },
        body,
      });

    /** Sends an event, signed by a third-party library. */
    async function tell(one) {
      const body = typeof one === 'string' ? one : JSON.stringify(one);
      sidecar.keep(body);
      const signature = await sign(sidecar.webhookSecret, body);
      sidecar.keep(signature.slice('sha256='.length));
      return send(body, signature);
    }

    async function applied(one, state = one.status) {
      const { status, json, text } = await tell(one);
      assert.equal(status, 200, text);
      assert.deepEqual(json, { status: 'applied', state });
    }

    async function refused(answer, status, name) {
      const { status: got, json, text, headers } = await answer;
      assert.deepEqual([got, json.error], [status, name], text);
      assert.equal(headers.get('cache-control'), 'no-store');
      assert.equal(json.request_id, headers.get('x-request-id'));
    }

    /** A signed-in user, with the session endpoint's response. */
    async function person(claims) {
      const id = sidecar.keep(randomUUID());
      const authorization = `Bearer ${await sidecar.session(id, claims)}`;
      const open = (init) =>
        sidecar.ask(SESSION, {
          method: 'POST',
          headers: { authorization, ...(init?.body && { 'content-type': 'application/json' }) },
          ...init,
        });
      const status = async () => {
        const answer = await sidecar.ask(SESSION, { headers: { authorization } });
        assert.equal(answer.status, 200, answer.text);
        assert.equal(answer.headers.get('cache-control'), 'no-store');
        return answer.json;
      };
      return { open, status };
    }

    /** A user with an open session, and its reference. */
    async function subject() {
      const one = await person();
      const answer = await one.open();
      assert.equal(answer.status, 201, answer.text);
      return { ...one, reference: answer.json.subject_ref };
    }

    test('a session has an opaque reference, valid for a day', async () => {
      const one = await person();
      assert.deepEqual(await one.status(), { status: 'unverified' });
      const references = new Set();
      for (const body of [undefined, '{}']) {
        const answer = await one.open({ body });
        assert.equal(answer.status, 201, answer.text);
        assert.equal(answer.headers.get('cache-control'), 'no-store');
        const { subject_ref, status, expires_at, ...others } = answer.json;
        assert.match(subject_ref, /^[0-9a-f]{48}$/);
        assert.deepEqual([status, others], ['pending', {}]);
        assert.match(expires_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
        const left = Date.parse(expires_at) - Date.now();
        assert.ok(Math.abs(left - 24 * HOUR) < minutes(1), expires_at);
        references.add(subject_ref);
      }
      assert.equal(references.size, 2, 'each session has its own reference');
      assert.deepEqual(await one.status(), { status: 'pending' });
    });

    test('no session for unauthenticated, anonymous or banned users', async () => {
      const nobody = sidecar.ask(SESSION, { method: 'POST' });
      await refused(nobody, 401, 'AuthenticationRequired');
      await refused((await person({ is_anonymous: true })).open(), 403, 'Forbidden');
      await refused((await person({ sub: user('banned') })).open(), 403, 'Forbidden');
      await refused((await person({ exp: 1 })).open(), 401, 'JwtExpired');
      await refused((await person({ role: 'service_role' })).open(), 401, 'BadJwt');
    });

    test('a session request with an unexpected body is refused', async () => {
      const one = await person();
      await refused(one.open({ body: '{"email":"a@b.example"}' }), 400, 'InvalidRequest');
      await refused(one.open({ body: `{${' '.repeat(2000)}}` }), 413, 'PayloadTooLarge');
    });

    test('the sixth session request within a minute is rate limited', async () => {
      const one = await person();
      for (let number = 0; number < 5; number += 1) assert.equal((await one.open()).status, 201);
      const sixth = await one.open();
      await refused(sixth, 429, 'RateLimitExceeded');
      const wait = Number(sixth.headers.get('retry-after'));
      assert.ok(wait >= 1 && wait <= 60, `${wait}`);
      assert.equal((await (await person()).open()).status, 201, 'another user does not wait');
    });

    test('from the session to verified, and to revoked', async () => {
      const one = await subject();
      const began = anHourAgo();
      await applied(event(one.reference, 'pending', began));
      assert.deepEqual(await one.status(), { status: 'pending' });
      const ends = began + 2 * HOUR;
      await applied(event(one.reference, 'verified', began + 1000, { expires_at: iso(ends) }));
      const { verified_at, expires_at, ...rest } = await one.status();
      assert.deepEqual(rest, { status: 'verified', age_band: '18_plus' });
      assert.deepEqual([Date.parse(verified_at), Date.parse(expires_at)], [began + 1000, ends]);
      await applied(event(one.reference, 'revoked', began + 2000));
      assert.equal((await one.status()).status, 'revoked');
      const late = tell(event(one.reference, 'verified', began + 3000));
      await refused(late, 409, 'InvalidTransition');
      assert.equal((await one.status()).status, 'revoked');
    });

    test('a verification past its end reads as expired', async () => {
      const one = await subject();
      const expires_at = iso(Date.now() - minutes(1));
      await applied(event(one.reference, 'verified', anHourAgo(), { expires_at }));
      assert.equal((await one.status()).status, 'expired');
    });

    test('a verification without an end is valid for a year', async () => {
      const one = await subject();
      const began = anHourAgo();
      await applied(event(one.reference, 'verified', began));
      const { status, expires_at } = await one.status();
      assert.equal(status, 'verified');
      assert.equal(Date.parse(expires_at) - began, 365 * 24 * HOUR);
    });

    test('an older event is stale and changes nothing', async () => {
      const one = await subject();
      const began = anHourAgo();
      await applied(event(one.reference, 'rejected', began));
      const stale = event(one.reference, 'verified', began - 1);
      await refused(tell(stale), 409, 'StaleTransition');
      assert.equal((await one.status()).status, 'rejected');
      const again = await tell(stale);
      assert.deepEqual(
        [again.status, again.json],
        [200, { status: 'duplicate', outcome: 'stale', state: 'rejected' }],
      );
    });

    test('at the same instant the stricter status wins', async () => {
      const one = await subject();
      const time = anHourAgo();
      await applied(event(one.reference, 'verified', time));
      await refused(tell(event(one.reference, 'pending', time)), 409, 'StaleTransition');
      await applied(event(one.reference, 'revoked', time));
      assert.equal((await one.status()).status, 'revoked');
    });

    test('fifty concurrent copies of an event are applied once', async () => {
      const one = await subject();
      const verified = event(one.reference, 'verified', anHourAgo());
      const answers = await Promise.all(Array.from({ length: 50 }, () => tell(verified)));
      const [first, ...others] = answers
        .map(({ status, json }) => ({ http: status, ...json }))
        .toSorted((a, b) => a.status.localeCompare(b.status));
      assert.deepEqual(first, { http: 200, status: 'applied', state: 'verified' });
      const duplicate = { status: 'duplicate', outcome: 'applied', state: 'verified' };
      for (const other of others) assert.deepEqual(other, { http: 200, ...duplicate });
    });

    test('an event in another encoding is the same event', async () => {
      const one = await subject();
      const time = anHourAgo();
      const verified = event(one.reference, 'verified', time);
      await applied(verified);
      const zone = (at) => iso(Date.parse(at) + 2 * HOUR).replace('Z', '+02:00');
      const same = {
        ...Object.fromEntries(Object.entries(verified).toReversed()),
        occurred_at: zone(verified.occurred_at),
        verified_at: zone(verified.verified_at),
      };
      const { status, json, text } = await tell(JSON.stringify(same, null, 2));
      assert.equal(status, 200, text);
      assert.deepEqual(json, { status: 'duplicate', outcome: 'applied', state: 'verified' });
    });

    test('an event id with another content is a conflict', async () => {
      const one = await subject();
      const verified = event(one.reference, 'verified', anHourAgo());
      await applied(verified);
      const other = await subject();
      const meanings = [
        { age_band: '16_17' },
        { subject_ref: other.reference },
        { occurred_at: iso(Date.now()) },
        { expires_at: iso(Date.now() + HOUR) },
      ];
      for (const change of meanings) {
        await refused(tell({ ...verified, ...change }), 409, 'EventConflict');
      }
      assert.equal((await one.status()).age_band, '18_plus');
      assert.deepEqual(await other.status(), { status: 'pending' });
    });

    test('an event of an unknown reference is not stored', async () => {
      const unknown = event(randomBytes(24).toString('hex'), 'verified', anHourAgo());
      await refused(tell(unknown), 404, 'UnknownSubject');
      await refused(tell(unknown), 404, 'UnknownSubject');
      const one = await subject();
      await applied({ ...unknown, subject_ref: one.reference });
    });

    test('third-party signatures are accepted in every allowed form', async () => {
      const one = await subject();
      let time = anHourAgo();
      const forms = [
        ['openssl', openssl],
        ['openssl, in capitals', openssl, (hex) => hex.toUpperCase()],
        ['openssl, with the prefix', openssl, (hex) => `sha256=${hex}`],
        ['the library', sign],
        ['the library, without the prefix', sign, (signature) => signature.slice(7)],
        ['the library, with the next secret', sign, undefined, sidecar.nextWebhookSecret],
      ];
      for (const [form, signer, shape = (it) => it, secret = sidecar.webhookSecret] of forms) {
        time += 1000;
        const body = JSON.stringify(event(one.reference, 'verified', time), null, 1);
        const { status, json, text } = await send(body, shape(await signer(secret, body)));
        assert.deepEqual([status, json?.status], [200, 'applied'], `${form}: ${text}`);
      }
    });

    test('every wrong signature gets the same refusal', async () => {
      const one = await subject();
      const body = JSON.stringify(event(one.reference, 'verified', anHourAgo()));
      const right = await openssl(sidecar.webhookSecret, body);
      const turned = (right[0] === '0' ? '1' : '0') + right.slice(1);
      const bodies = new Set();
      const wrong = [
        ['none', undefined],
        ['empty', ''],
        ['of another secret', await sign(freshSecret(), body)],
        ['of an empty secret', createHmac('sha256', '').update(body).digest('hex')],
        ['of another body', await sign(sidecar.webhookSecret, `${body} `)],
        ['with one bit turned', turned],
        ['cut short', right.slice(1)],
        ['too long', `${right}00`],
        ['in base64', Buffer.from(right, 'hex').toString('base64')],
        ['with another prefix', `sha1=${right}`],
        ['with the prefix twice', `sha256=sha256=${right}`],
        ['in letters that are no digits', 'z'.repeat(64)],
        ['the secret itself', sidecar.webhookSecret],
      ];
      for (const [what, signature] of wrong) {
        const { status, json, text, headers } = await send(body, signature);
        assert.equal(status, 401, `${what}: ${text}`);
        assert.equal(headers.get('www-authenticate'), null);
        bodies.add(JSON.stringify({ ...json, request_id: undefined }));
      }
      assert.equal(bodies.size, 1, [...bodies].join('\n'));
      assert.equal(JSON.parse([...bodies][0]).error, 'InvalidSignature');
      for (const changed of [body.replace('{', '{ '), `${body}\n`, body.toUpperCase()]) {
        await refused(send(changed, right), 401, 'InvalidSignature');
      }
      assert.deepEqual(await one.status(), { status: 'pending' });
      assert.equal((await send(body, right)).status, 200, 'and the right one is taken');
    });

    test('a repeated signature header is refused', async () => {
      const one = await subject();
      const body = JSON.stringify(event(one.reference, 'verified', anHourAgo()));
      const right = await openssl(sidecar.webhookSecret, body);
      const { status, json } = await raw(sidecar.url, body, [HEADER, right, HEADER, right]);
      assert.deepEqual([status, json.error], [401, 'InvalidSignature']);
    });

    const WAYS = [
      ['declared', undefined],
      ['in one chunk', LIMIT * 2],
      ['in many chunks', 1000],
    ];
    for (const [way, chunk] of WAYS) {
      test(`a body ${way} may have 16,384 bytes, not 16,385`, async () => {
        const one = await subject();
        const body = JSON.stringify(event(one.reference, 'verified', anHourAgo()));
        for (const [length, status, word] of [
          [LIMIT + 1, 413, 'PayloadTooLarge'],
          [LIMIT, 200, undefined],
        ]) {
          const bytes = padded(body, length);
          const signature = await sign(sidecar.webhookSecret, bytes);
          const answer = await raw(sidecar.url, bytes, [HEADER, signature], chunk);
          assert.deepEqual([answer.status, answer.json.error], [status, word], answer.text);
        }
      });
    }

    const FORBIDDEN = [
      ['date_of_birth', '1990-07-21'],
      ['birth_date', '1991-08-22'],
      ['dob', '1992-09-23'],
      ['birth_year', '1993-birth'],
      ['age', 'thirty-three'],
      ['name', 'Jane Q Example'],
      ['first_name', 'Jane-Quill'],
      ['email', 'jane@mail.example'],
      ['phone', '+44 7700 900123'],
      ['address', '1 Example Street'],
      ['document_number', 'P-12345678'],
      ['document_image', 'data:image/png;base64,AAAA'],
      ['user_id', '1a2b3c4d-user'],
      ['metadata', { date_of_birth: '1994-10-24' }],
      ['DATE_OF_BIRTH', '1995-11-25'],
    ];
    for (const [field, value] of FORBIDDEN) {
      test(`an event with ${field} is refused, and its value not stored`, async () => {
        const one = await subject();
        const verified = event(one.reference, 'verified', anHourAgo());
        for (const stated of typeof value === 'string' ? [value] : Object.values(value)) {
          sidecar.keep(stated);
        }
        await refused(tell({ ...verified, [field]: value }), 400, 'InvalidRequest');
        assert.deepEqual(await one.status(), { status: 'pending' });
        await applied(verified);
      });
    }

    test('an event with a missing, wrong or repeated member is refused', async () => {
      const one = await subject();
      const now = Date.now();
      const verified = event(one.reference, 'verified', now - HOUR);
      const changed = [
        ...Object.keys(verified)
          .filter((name) => name !== 'expires_at')
          .map((name) => [`without ${name}`, { [name]: undefined }]),
        ['an empty name', { event_id: '' }],
        ['a name too long', { event_id: 'e'.repeat(129) }],
        ['a reference in capitals', { subject_ref: one.reference.toUpperCase() + 'A' }],
        ['a word of no meaning', { status: 'approved' }],
        ['a band of no meaning', { age_band: 'adult' }],
        ['a time that is a number', { occurred_at: Math.floor(now / 1000) }],
        ['a time without a zone', { occurred_at: iso(now - HOUR).replace('Z', '') }],
        ['a time that is to come', { occurred_at: iso(now + minutes(10)) }],
        ['an end before the start', { expires_at: iso(now - 2 * HOUR) }],
        ['a start after it happened', { verified_at: iso(now - HOUR + minutes(6)) }],
      ];
      for (const [what, change] of changed) {
        const { status, json, text } = await tell({ ...verified, ...change });
        assert.deepEqual([status, json.error], [400, 'InvalidRequest'], `${what}: ${text}`);
      }
      const body = JSON.stringify(verified);
      const bodies = [
        body.replace('{', '{"status":"revoked",'),
        body.replace('{', '{"st\\u0061tus":"revoked",'),
        `[${body}]`,
        `${body}${body}`,
        `\ufeff${body}`,
        body.slice(0, -1),
        'null',
        '',
      ];
      for (const bad of bodies) {
        const { status, json, text } = await send(bad, await openssl(sidecar.webhookSecret, bad));
        assert.deepEqual([status, json.error], [400, 'InvalidRequest'], `${bad}: ${text}`);
      }
      assert.deepEqual(await one.status(), { status: 'pending' });
    });

    test('concurrent events leave each subject with its own status', async () => {
      const ends = ['verified', 'rejected', 'revoked', 'expired'];
      const subjects = await Promise.all(Array.from({ length: 40 }, subject));
      const began = anHourAgo();
      await Promise.all(
        subjects.map(async (one, number) => {
          await applied(event(one.reference, 'verified', began + number));
          const end = ends[number % ends.length];
          await applied(event(one.reference, end, began + minutes(1) + number));
          assert.equal((await one.status()).status, end);
        }),
      );
    });
  });
}
