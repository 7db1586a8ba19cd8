// A web page as a wallet: starknet.js in a real Chromium, on another origin than the gateway's. The
// node is real. Covers what only a browser enforces: preflights, exposed headers, origins, cookies.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { RpcProvider } from 'starknet';
import { Browser, Site } from './browser_world.mjs';
import { Gateway } from './cache_world.mjs';
import { Node, endAll, eventually } from './relay_world.mjs';

const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const ACCOUNT_CLASS = '0x5b4b537eaa2399e3aa99c4e2e0208ebd6c71bc1467938cd52c798c601e43564';
/** The first account of `--seed 0`. */
const ACCOUNT = '0x64b48806902a367c8598f4f95c305e8c1a1acba5f082d294a43793113115691';
/** Requests per minute, in the test that reaches the rate limit. */
const FEW = 5;

let node;
let site;
let browser;
const gateways = [];

before(async () => {
  [node, site, browser] = await Promise.all([Node.start(), Site.start(), Browser.start()]);
});
after(() => endAll(browser, ...gateways, site, node));

async function gateway(env = {}) {
  const started = await Gateway.start(node, env);
  gateways.push(started);
  return started;
}

/**
 * What the page sent to the gateway: at least one preflight, and `count` calls. Chromium reports
 * them on a different channel than the one that delivers the page's responses.
 */
function sentTo(page, { url }, count) {
  return eventually(`a preflight and ${count} calls`, () => {
    const [preflights, calls] = [[], []];
    for (const one of page.sent.filter((request) => request.url === url)) {
      (one.method === 'OPTIONS' ? preflights : calls).push(one);
    }
    return preflights.length > 0 && calls.length >= count && { preflights, calls };
  });
}

/** Why the page cannot read a response, as `fetch` reports it there. */
function refusal(page, url, options = {}) {
  return page.evaluate(
    (url, options) => window.read(url, options).then(JSON.stringify, (error) => error.name),
    url,
    options,
  );
}

// The rate limit window is one minute: the other pages run meanwhile.
describe('a page', { concurrency: true }, () => {
  test('reads with starknet.js what the node returns', async () => {
    const { url } = await gateway();
    const page = await browser.open(site.origin);
    const reads = (nodeUrl, token, account, classHash) => {
      const { Account, Contract, Signer } = window.starknet;
      const provider = new window.starknet.RpcProvider({ nodeUrl });
      // A fee estimate needs no signature: a signer that is called fails the test.
      const signer = new Signer('0x1');
      signer.signTransaction = () => Promise.reject(new Error('it was to be signed'));
      const payer = new Account({ provider, address: account, signer, cairoVersion: '1' });
      const transfer = {
        contractAddress: token,
        entrypoint: 'transfer',
        calldata: ['0xf00d', '7', '0'],
      };
      const read = async () => {
        const { abi } = await provider.getClassAt(token);
        const contract = new Contract({ abi, address: token, providerOrAccount: provider });
        return {
          chain: await provider.getChainId(),
          spec: await provider.getSpecVersion(),
          number: await provider.getBlockNumber(),
          block: await provider.getBlockWithTxHashes('latest'),
          balance: await contract.balance_of(account),
          nonce: await provider.getNonceForAddress(account),
          class: await provider.getClassByHash(classHash),
          fee: await payer.estimateInvokeFee(transfer, { tip: 0n }),
        };
      };
      const plain = (_, value) => (typeof value === 'bigint' ? `0x${value.toString(16)}` : value);
      return read().then((found) => JSON.stringify(found, plain));
    };
    const ask = async (nodeUrl) =>
      JSON.parse(await page.evaluate(reads, nodeUrl, STRK, ACCOUNT, ACCOUNT_CLASS));

    const found = await ask(url);
    // The node allows pages to read it, too; the comparison needs that.
    assert.deepEqual(found, await ask(node.url));
    assert.equal(found.chain, '0x504f525443554c4c49535f444556');
    assert.ok(BigInt(found.balance) > 0n && BigInt(found.fee.overall_fee) > 0n);
    assert.equal(found.nonce, '0x0');
    assert.ok(found.class.sierra_program.length > 0);
    const latest = await new RpcProvider({ nodeUrl: node.url }).getBlockWithTxHashes('latest');
    assert.equal(found.block.block_hash, latest.block_hash);
  });

  test('reads the rate limit, cache and request headers only', async () => {
    const { url } = await gateway();
    const page = await browser.open(site.origin);
    // a page may send any header of its own, too
    const own = { 'x-wallet': '1', authorization: 'Bearer of-another-provider' };
    const named = { headers: { 'x-request-id': 'the-wallets-own-id', ...own } };
    const first = await page.evaluate((url, named) => window.read(url, named), url, named);
    assert.equal(first.status, 200);
    assert.match(first.headers.ratelimit, /^"minute";r=\d+;t=\d+$/);
    assert.equal(first.headers['ratelimit-policy'], '"minute";q=1000000;w=60');
    assert.equal(first.headers['x-cache'], 'miss');
    assert.equal(first.headers['x-request-id'], 'the-wallets-own-id');
    assert.equal(first.headers['retry-after'], null, 'there is nothing to wait for');
    assert.equal(first.headers.date, null, 'it came, and it is not for pages');
    const second = await page.evaluate((url) => window.read(url), url);
    assert.equal(second.headers['x-cache'], 'hit');
  });

  test('retries once after the delay that a 429 requests', async () => {
    const { url } = await gateway({ PORTCULLIS__GATEWAY__REQUESTS_PER_MINUTE: `${FEW}` });
    const page = await browser.open(site.origin);
    const answers = await page.evaluate(
      async (url, calls) => {
        const { provider, answers } = window.wallet(url);
        for (let call = 0; call < calls; call += 1) await provider.getBlockNumber();
        return answers;
      },
      url,
      FEW + 1,
    );
    const statuses = answers.map(({ status }) => status);
    assert.deepEqual(statuses, [...Array(FEW).fill(200), 429, 200]);
    const left = answers.map(({ headers }) => Number(headers.ratelimit.match(/r=(\d+)/)[1]));
    assert.deepEqual(left.slice(0, FEW + 1), [4, 3, 2, 1, 0, 0]);
    const refused = answers.at(-2);
    const stated = Number(refused.headers['retry-after']);
    assert.ok(stated >= 1 && stated <= 60, `${stated}`);
    assert.equal(refused.headers.ratelimit, `"minute";r=0;t=${stated}`);
    assert.ok(answers.at(-1).at - refused.at >= stated * 1000, 'it waited');
  });

  test('sees the reason of a refusal, as starknet.js reports it', async () => {
    const { url } = await gateway();
    const page = await browser.open(site.origin);
    const found = await page.evaluate(async (nodeUrl) => {
      const provider = new window.starknet.RpcProvider({ nodeUrl });
      const failure = (call) => call.then(() => undefined, (error) => error);
      const unlisted = await failure(provider.getStorageAt('0x1', '0x0'));
      const missing = await failure(provider.getClassHashAt('0xdead'));
      const { reason } = unlisted.baseError.data;
      return { reason, code: unlisted.code, missing: missing.code };
    }, url);
    assert.deepEqual(found, { reason: 'method_not_allowed', code: -32601, missing: 20 });
  });

  test('sends one preflight and caches it for the next page', async () => {
    const started = await gateway();
    const page = await browser.open(site.origin);
    const read = () => page.evaluate((url) => window.read(url), started.url);
    for (let call = 0; call < 5; call += 1) assert.equal((await read()).status, 200);
    const ours = { headers: { 'x-request-id': 'the-wallets-own-id' } };
    await page.evaluate((url, ours) => window.read(url, ours), started.url, ours);
    const { preflights, calls } = await sentTo(page, started, 6);
    assert.equal(calls.length, 6);
    assert.equal(preflights.length, 1, 'for all headers that a page may send');

    const again = await page.browserContext().newPage();
    const session = await again.createCDPSession();
    const sent = [];
    session.on('Network.requestWillBeSent', ({ request }) => sent.push(request));
    await session.send('Network.enable');
    await again.goto(site.origin);
    const status = await again.evaluate(
      (url, body) =>
        fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
          .then((answer) => answer.status),
      started.url,
      '{"jsonrpc":"2.0","id":1,"method":"starknet_chainId"}',
    );
    assert.equal(status, 200);
    const toTheGateway = () => sent.filter(({ url }) => url === started.url);
    await eventually('the call is recorded', () => toTheGateway().length > 0);
    const methods = toTheGateway().map(({ method }) => method);
    assert.deepEqual(methods, ['POST'], 'the answer is cached for a day');
  });

  test('sends no cookie, receives none, and cannot use credentials', async () => {
    const started = await gateway();
    const page = await browser.open(site.origin);
    const cookies = () => page.browserContext().cookies();
    assert.deepEqual((await cookies()).map(({ name }) => name), ['session']);
    assert.equal((await page.evaluate((url) => window.read(url), started.url)).status, 200);
    const { calls: [call] } = await sentTo(page, started, 1);
    const headers = await eventually('its headers', () => page.headers.get(call.requestId));
    assert.equal(headers.Origin, site.origin, 'these are the headers that went out');
    assert.equal(headers.Cookie, undefined);
    assert.equal(await refusal(page, started.url, { credentials: 'include' }), 'TypeError');
    assert.deepEqual((await cookies()).map(({ name }) => name), ['session']);
  });

  test('of an origin that is not listed cannot reach the node', async () => {
    const origins = { PORTCULLIS__GATEWAY__CORS_ORIGINS: site.origin };
    const started = await gateway(origins);
    const listed = await browser.open(site.origin);
    const other = await browser.open(site.otherOrigin);
    const requested = () => started.metric('portcullis_calls_total{');

    assert.equal((await listed.evaluate((url) => window.read(url), started.url)).status, 200);
    const before = await requested();
    assert.equal(before, 1);
    assert.equal(await refusal(other, started.url), 'TypeError');
    assert.equal((await sentTo(other, started, 0)).preflights.length, 1);
    // No preflight: the gateway does not accept this content type, and the page cannot even see
    // that.
    const simple = { headers: { 'content-type': 'text/plain' } };
    assert.equal(await refusal(other, started.url, simple), 'TypeError');
    assert.equal(await requested(), before);
    // Credentials do not help a listed page, either.
    assert.equal(await refusal(listed, started.url, { credentials: 'include' }), 'TypeError');
  });
});
