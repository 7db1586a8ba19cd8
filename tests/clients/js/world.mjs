// Fixtures of the tests here: the two URLs, the seed-0 devnet behind them, and an account that
// reads through the gateway and writes to the node.
import { Account, CallData, RpcProvider, cairo, ec, hash, stark } from 'starknet';
import { ACCOUNT_CLASS, SEEDED, STRK } from './devnet.mjs';

export * from './devnet.mjs';

function need(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: tests/run sets it`);
  return value;
}

export const GATEWAY = need('PORTCULLIS_GATEWAY');
export const NODE = need('PORTCULLIS_NODE');

/** Reads only, as a wallet or an explorer would. */
export const gateway = new RpcProvider({ nodeUrl: GATEWAY });
/** The node itself: only for writes, for setup, and to compare with. */
export const node = new RpcProvider({ nodeUrl: NODE });

/** How an application uses both: it reads through the gateway, and writes to the node. */
export class SplitProvider extends RpcProvider {
  constructor() {
    super({ nodeUrl: GATEWAY });
  }
  invokeFunction(...args) {
    return node.invokeFunction(...args);
  }
  deployAccountContract(...args) {
    return node.deployAccountContract(...args);
  }
}

/** One POST; the status and headers as received, the body as text and as JSON. */
export async function post(url, body, headers = {}) {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, text, json: JSON.parse(text) };
}

let lastId = 0;
/** One JSON-RPC call. Without `params` the member is left out, as starknet.js does. */
export function rpc(url, method, params) {
  lastId += 1;
  return post(url, { jsonrpc: '2.0', id: lastId, method, ...(params !== undefined && { params }) });
}

/** Test money from the devnet. Returns the hash of the funding transaction. */
export async function mint(address, amount = 10 ** 18) {
  const { json } = await rpc(NODE, 'devnet_mint', { address, amount, unit: 'FRI' });
  if (json.error) throw new Error(`devnet_mint: ${json.error.message}`);
  return json.result.tx_hash;
}

/** A fresh key, the address that follows from it, and money on it. Not deployed yet. */
export async function fundedAccount() {
  const signer = stark.randomAddress();
  const publicKey = ec.starkCurve.getStarkKey(signer);
  const address = hash.calculateContractAddressFromHash(publicKey, ACCOUNT_CLASS, [publicKey], 0);
  await mint(address);
  const provider = new SplitProvider();
  const account = new Account({ provider, address, signer, cairoVersion: '1' });
  const payload = {
    classHash: ACCOUNT_CLASS,
    constructorCalldata: [publicKey],
    addressSalt: publicKey,
  };
  return { account, address, payload };
}

/** A transfer of `amount` STRK to `to`, ready for `execute`. */
export function transfer(to, amount) {
  const calldata = CallData.compile([to, cairo.uint256(amount)]);
  return { contractAddress: STRK, entrypoint: 'transfer', calldata };
}

/** The STRK balance of `address`, read through `provider`. */
export async function balance(provider, address) {
  const call = { contractAddress: STRK, entrypoint: 'balance_of', calldata: [address] };
  const [low, high] = await provider.callContract(call);
  return BigInt(low) + (BigInt(high) << 128n);
}
