// Fixtures of the cache tests: a node whose blocks can be aborted, a proxy to it that separates the
// gateway's polls from clients' calls, and a gateway with its cache on.
import assert from 'node:assert/strict';
import { readFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Account, RpcProvider } from 'starknet';
import { SEEDED } from './devnet.mjs';
import { Child, Node, eventually } from './relay_world.mjs';

const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
const BUILD = new URL('../../../conf/dev/contracts/build/', import.meta.url);
/** Separates a client's call from a poll: client calls carry this mark to the node. */
const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

export const BLOCK = 'starknet_getBlockWithTxHashes';
export const CLASS = 'starknet_getClass';
export const RECEIPT = 'starknet_getTransactionReceipt';

/** A node whose blocks can be aborted, and which can report its past states. */
export function chainNode(...more) {
  return Node.start('--state-archive-capacity', 'full', ...more);
}

export async function mint(node, amount = 1000, address = '0x123') {
  const { tx_hash } = await node.ask('devnet_mint', { address, amount, unit: 'FRI' });
  return tx_hash;
}

export async function height(node) {
  return node.ask('starknet_blockNumber', []);
}

export function abort(node, from) {
  return node.ask('devnet_abortBlocks', { starting_block_id: { block_number: from } });
}

/** Declares one of our contracts. Returns its class hash. */
export async function declare(node, name) {
  const read = async (kind) => JSON.parse(await readFile(new URL(`${name}.${kind}.json`, BUILD)));
  const [contract, casm] = [await read('sierra'), await read('casm')];
  // starknet.js serializes the ABI itself.
  contract.abi = JSON.parse(contract.abi);
  const provider = new RpcProvider({ nodeUrl: node.url });
  const { address, key: signer } = SEEDED;
  const account = new Account({ provider, address, signer, cairoVersion: '1' });
  const { class_hash } = await account.declare({ contract, casm }, { tip: 0n });
  return class_hash;
}

/** A proxy to the current node. It counts calls, and holds those that a test selects. */
export class Way {
  static async to(node) {
    const way = new Way();
    Object.assign(way, { node, looks: 0, calls: [], pool: new http.Agent({ keepAlive: true }) });
    way.server = http.createServer((request, response) => {
      // When the node is gone, the proxy closes the connection, as the node would.
      way.pass(request, response).catch(() => request.socket.destroy());
    });
    await new Promise((resolve) => way.server.listen(0, '127.0.0.1', resolve));
    way.url = `http://127.0.0.1:${way.server.address().port}/rpc`;
    return way;
  }

  async pass(request, response) {
    const body = await bytesOf(request);
    const { method, params } = JSON.parse(body);
    if (request.headers.traceparent) {
      this.calls.push({ method, params });
      await this.hold;
    } else if (params.block_id === 'latest') {
      // The first call of each poll.
      this.looks += 1;
    }
    const answer = await this.forward(body);
    response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
  }

  forward(body) {
    return new Promise((resolve, reject) => {
      const headers = { 'content-type': 'application/json', 'content-length': body.length };
      const options = { method: 'POST', agent: this.pool, headers };
      const request = http.request(this.node.url, options, (answer) => {
        bytesOf(answer).then(resolve, reject);
      });
      request.once('error', reject);
      request.end(body);
    });
  }

  /** Resolves once a poll that began from now on has finished: the next one has begun. */
  look() {
    const end = this.looks + 2;
    return eventually('two looks of the watch', () => this.looks >= end);
  }

  end() {
    this.server.closeAllConnections();
    this.pool.destroy();
    return new Promise((resolve) => this.server.close(resolve));
  }
}

/** A gateway with its cache on. */
export class Gateway {
  static async start(way, env = {}) {
    const gateway = new Gateway();
    gateway.dir = await mkdtemp(join(tmpdir(), 'portcullis-cache-'));
    const config = join(gateway.dir, 'portcullis.toml');
    await writeFile(config, `[node]\nurl = "${way.url}"\n[gateway]\n[admin]\n`);
    gateway.child = new Child(PORTCULLIS, ['serve', '--config', config], {
      PORTCULLIS__GATEWAY__LISTEN: '127.0.0.1:0',
      PORTCULLIS__ADMIN__LISTEN: '127.0.0.1:0',
      // Tests send more requests than any one client does.
      PORTCULLIS__GATEWAY__REQUESTS_PER_MINUTE: '1000000',
      PORTCULLIS__GATEWAY__MAX_IN_FLIGHT_PER_CLIENT: '1000',
      ...env,
    });
    const url = async (surface) => {
      const line = new RegExp(`"listening","surface":"${surface}","address":"([^"]+)"`);
      const [, address] = await gateway.child.says(line);
      return `http://${address}`;
    };
    gateway.url = `${await url('gateway')}/rpc`;
    gateway.admin = await url('admin');
    return gateway;
  }

  /** The sum of all series with this prefix. */
  async metric(series) {
    const text = await (await fetch(`${this.admin}/metrics`)).text();
    const lines = text.split('\n').filter((line) => line.startsWith(series));
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  }

  /** Resolves once responses about blocks up to this one are cacheable. */
  settled(number) {
    return eventually(`block ${number} to settle`, async () => {
      return (await this.metric('portcullis_cache_settled_block ')) >= number;
    });
  }

  async end() {
    const code = await this.child.end();
    await rm(this.dir, { recursive: true, force: true });
    assert.equal(code, 0, this.child.output);
  }
}

/** One call: the response text, and its cache status. */
export async function ask(url, [method, params]) {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', traceparent: TRACE },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  });
  return { text: await answer.text(), cache: answer.headers.get('x-cache') };
}

/** Repeats all requests, several at a time, until `stop`; returns how many rounds it made. */
export function poll(gateway, questions, workers = 4) {
  let running = true;
  let requested = 0;
  const work = async (at) => {
    for (let turn = at; running; turn += 1) {
      await ask(gateway.url, questions()[turn % questions().length]);
      requested += 1;
    }
  };
  const all = Promise.all(Array.from({ length: workers }, (_, at) => work(at)));
  return {
    async stop() {
      running = false;
      await all;
      return requested;
    },
  };
}

/** Asserts that the gateway returns the node's bytes, both now and from the cache. */
export async function agrees(gateway, node, questions, why) {
  for (const question of questions) {
    const what = `${why}: ${JSON.stringify(question).slice(0, 160)}`;
    const truth = await ask(node.url, question);
    for (let turn = 0; turn < 2; turn += 1) {
      const answer = await ask(gateway.url, question);
      const at = difference(truth.text, answer.text);
      const said = `${answer.cache}: ${answer.text.slice(at)}`;
      assert.ok(answer.text === truth.text, `${what}: not ${truth.text.slice(at)} but ${said}`);
    }
  }
}

/** Where two texts begin to differ, less some context. */
function difference(one, other) {
  let at = 0;
  while (at < one.length && one[at] === other[at]) at += 1;
  return Math.max(0, at - 60);
}

async function bytesOf(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}
