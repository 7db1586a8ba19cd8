// A write as a wallet makes it: the wallet signs, the product's backend submits, the wallet reads the
// receipt. README.md next to this file explains each step.
//
// In the folder where `portcullis dev` runs: npm install starknet@10, then node write.mjs. Other
// addresses: GATEWAY, RELAY and STATE (the folder of `dev`) in the environment.
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { Account, CallData, RpcProvider, cairo, ec, hash, stark } from 'starknet';

const GATEWAY = process.env.GATEWAY ?? 'http://127.0.0.1:8080/rpc';
const RELAY = process.env.RELAY ?? 'http://127.0.0.1:8081';
const STATE = process.env.STATE ?? '.portcullis';

/** The contracts and the account class, from the relay's pins. */
const text = await readFile(`${STATE}/portcullis.toml`, 'utf8');
const pins = Object.fromEntries([...text.split('[relay.pins]\n')[1].split('\n\n')[0]
  .matchAll(/^(\w+) = "(.+)"$/gm)].map(([, key, value]) => [key, value]));

// ---- The backend: the only one that has the relay's token.

const token = (await readFile(`${STATE}/relay.token`, 'utf8')).trim();

/** One request to the relay. */
async function relay(path, body) {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
  return fetch(RELAY + path, { method: 'POST', headers, body: JSON.stringify(body) });
}

/**
 * Submits a signed transaction, and the same again where an answer says when. That is safe: the relay
 * sends it once at most.
 */
async function submit(call) {
  for (let attempt = 1; ; attempt += 1) {
    const answer = await relay('/rpc', call);
    const seconds = answer.headers.get('retry-after');
    if (seconds === null || attempt === 5) return answer;
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
  }
}

const backend = createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = JSON.parse(Buffer.concat(pieces));
  // Yours: authenticate the user here, and take `identity` from the session, never from the body: a
  // number of your own, below 2^251, the same for each request of this user.
  const answer = request.url === '/transactions' ? await submit(body)
    : await relay('/faucet-drip', { identity: `0x01${randomBytes(30).toString('hex')}`, ...body });
  response.writeHead(answer.status, { 'content-type': 'application/json' })
    .end(await answer.text());
});
await new Promise((resolve) => backend.listen(0, '127.0.0.1', resolve));
const BACKEND = `http://127.0.0.1:${backend.address().port}`;

// ---- The wallet: it has the key, reads at the gateway, and sends what it signed to the backend.

async function toBackend(path, body) {
  const headers = { 'content-type': 'application/json' };
  return fetch(BACKEND + path, { method: 'POST', headers, body });
}

const provider = new RpcProvider({
  nodeUrl: GATEWAY,
  // starknet.js signs, then submits: only the last step has another address
  baseFetch: (url, init) => (JSON.parse(init.body).method.startsWith('starknet_add')
    ? toBackend('/transactions', init.body) : fetch(url, init)),
});

const key = stark.randomAddress();
const publicKey = ec.starkCurve.getStarkKey(key);
const payload = {
  classHash: pins.account_class, constructorCalldata: [publicKey], addressSalt: publicKey,
};
const address = hash.calculateContractAddressFromHash(
  publicKey, payload.classHash, payload.constructorCalldata, 0);
const account = new Account({ provider, address, signer: key, cairoVersion: '1' });

/** A tip of 0, and bounds below the relay's caps: the library would read whole blocks for both. */
const price = 10n ** 10n;
const details = {
  tip: 0n,
  resourceBounds: {
    l1_gas: { max_amount: 100_000n, max_price_per_unit: price },
    l1_data_gas: { max_amount: 10_000n, max_price_per_unit: price },
    l2_gas: { max_amount: 200_000_000n, max_price_per_unit: price },
  },
};

/** Waits for the receipt, at the gateway. */
async function receipt(what, { transaction_hash: sent }) {
  const { execution_status: status } = await provider.waitForTransaction(sent,
    { retryInterval: 500 });
  console.log(`${what}: ${status} ${sent}`);
}

const drip = await toBackend('/welcome',
  JSON.stringify({ recipient: address, public_key: publicKey }));
await receipt('faucet', await drip.json());
await receipt('deploy', await account.deployAccount(payload, details));
const approve = {
  contractAddress: pins.token,
  entrypoint: 'approve',
  calldata: CallData.compile([pins.staking, cairo.uint256(5n)]),
};
await receipt('approve', await account.execute([approve], details));

// A call that the policy does not allow: the backend passes the reason on.
const transfer = { ...approve, entrypoint: 'transfer' };
const refused = await account.execute([transfer], details).catch((error) => error);
console.log(`transfer: refused, ${refused.baseError?.data?.reason}`);
backend.close();
