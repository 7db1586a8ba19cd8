// A drip from the relay, repeated until its outcome is known; README.md next to this file has the rule.
// `relay.ts` is what openapi-typescript makes of the relay's document.
//
// Arguments: identity, recipient, public key. RELAY and TOKEN_FILE are in the environment.
import { readFile } from 'node:fs/promises';
import createClient from 'openapi-fetch';
import type { components, paths } from './relay.js';

/** After this many attempts the last answer stands. */
const ATTEMPTS = 30;
/** A longer `Retry-After` is left to the caller. */
const PATIENCE = 60;

const token = await readFile(process.env.TOKEN_FILE ?? '.portcullis/relay.token', 'utf8');
const relay = createClient<paths>({
  baseUrl: process.env.RELAY ?? 'http://127.0.0.1:8081',
  headers: { Authorization: `Bearer ${token.trim()}` },
});

/** Sends a drip with its key until the answer is final. */
async function drip(body: components['schemas']['FaucetDrip']) {
  const header = { 'Idempotency-Key': `welcome-${body.identity}` };
  for (let attempt = 1; ; attempt += 1) {
    const sent = await relay.POST('/faucet-drip', { body, params: { header } });
    const { status, headers } = sent.response;
    const wait = Number(headers.get('Retry-After') ?? ([202, 504].includes(status) ? 1 : 0));
    if (wait === 0 || wait > PATIENCE || attempt === ATTEMPTS) return sent;
    await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
  }
}

const [identity = '', recipient = '', public_key = ''] = process.argv.slice(2);
const { data, error, response } = await drip({ identity, recipient, public_key });
// a closed list: a misspelled reason does not compile
if (error?.error.reason === 'faucet_cooldown') console.error('the user has had a drip');
console.log(response.status, data?.transaction_hash ?? error?.error.reason);
