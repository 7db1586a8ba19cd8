// A proxy between the relay and the node: forwards requests, and can hold them, or their responses,
// at a point where a test kills a process. Records every transaction it saw.
import http from 'node:http';

const IS_ADD = /^starknet_add/;
const IS_RECEIPT = /^starknet_getTransactionReceipt$/;
/** How long a test waits for the relay to reach a point; only a failing test waits this long. */
const PATIENCE_MS = 90_000;

/** Resolves as the promise does, or rejects with an error that names what did not happen. */
function inTime(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`did not happen: ${what}`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Holds the next `count` requests of a method: before the node has them, or after it answered. */
class Gate {
  constructor(method, where, count) {
    Object.assign(this, { method, where, count, holds: true, taken: new Set(), held: new Set() });
    this.old = new Set();
    this.full = new Promise((resolve) => (this.fill = resolve));
    this.fate = new Promise((resolve) => (this.decide = resolve));
  }

  /** Resolves when `count` requests are held. */
  reached() {
    return inTime(`${this.count} of ${this.method} to be held`, this.full);
  }

  /** Whether it holds this request. A repeated request counts once; one that was made before the
   * gate is not held, since the relay checks in the background that its last write stands. */
  takes(method, what) {
    if (!this.holds || !this.method.test(method) || this.old.has(what)) return false;
    if (this.taken.size < this.count) this.taken.add(what);
    return this.taken.has(what);
  }

  hold(what) {
    this.held.add(what);
    if (this.held.size === this.count) this.fill();
    return this.fate;
  }

  /** Releases held requests; their clients may be gone by then. */
  open() {
    this.end();
    this.decide('pass');
  }

  /** Holds no further requests. */
  end() {
    this.holds = false;
  }

  /** Drops held requests, and cuts their connections. */
  drop() {
    this.end();
    this.decide('cut');
  }
}

export class Proxy {
  /** A proxy in front of the node at `target`; its own URL is `url`. */
  static async before(target) {
    const proxy = new Proxy();
    proxy.target = target;
    proxy.pool = new http.Agent({ keepAlive: true });
    proxy.gates = [];
    /** Transactions forwarded to the node: the request's text, then the hash in the response. */
    proxy.adds = [];
    /** The parameters of every request for a receipt. */
    proxy.receipts = new Set();
    proxy.watchers = new Set();
    /** Transactions that were forwarded and have no answer. */
    proxy.unanswered = 0;
    await proxy.#listen(0);
    const { port } = proxy.server.address();
    proxy.port = port;
    proxy.url = `http://127.0.0.1:${port}/rpc`;
    return proxy;
  }

  #listen(port) {
    this.server = http.createServer((request, response) => {
      this.#serve(request, response).catch(() => request.socket.destroy());
    });
    return new Promise((resolve) => this.server.listen(port, '127.0.0.1', resolve));
  }

  async #serve(request, response) {
    const body = await textOf(request);
    const { method, params } = JSON.parse(body);
    const what = JSON.stringify(params);
    const gate = this.gates.find((one) => one.takes(method, what));
    if (IS_RECEIPT.test(method)) this.receipts.add(what);
    if (gate?.where === 'before' && (await gate.hold(what)) === 'cut') {
      request.socket.destroy();
      return;
    }
    const add = IS_ADD.test(method) ? { target: this.target, params: what } : null;
    if (add) {
      this.adds.push(add);
      this.watchers.forEach((watch) => watch());
    }
    if (add) this.unanswered += 1;
    const answer = await this.#forward(body).finally(() => {
      if (add) this.unanswered -= 1;
    });
    if (add) add.hash = JSON.parse(answer).result?.transaction_hash;
    if (gate?.where === 'after' && (await gate.hold(what)) === 'cut') {
      request.socket.destroy();
      return;
    }
    response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
  }

  #forward(body) {
    return new Promise((resolve, reject) => {
      const length = Buffer.byteLength(body);
      const headers = { 'content-type': 'application/json', 'content-length': length };
      const options = { method: 'POST', agent: this.pool, headers };
      const request = http.request(this.target, options, (answer) => {
        textOf(answer).then(resolve, reject);
      });
      request.once('error', reject);
      request.end(body);
    });
  }

  /** Holds the next `count` requests whose method matches, before they reach the node. */
  holdBefore(method, count = 1) {
    return this.#gate(method, 'before', count);
  }

  /** Forwards them, and holds their responses. */
  holdAnswers(method, count = 1) {
    return this.#gate(method, 'after', count);
  }

  /** Cuts the connection of every matching request, until the gate's `end`. */
  cutAll(method) {
    const gate = this.#gate(method, 'before', Infinity);
    gate.decide('cut');
    return gate;
  }

  #gate(method, where, count) {
    const gate = new Gate(method, where, count);
    if (count < Infinity) gate.old = new Set(this.receipts);
    this.gates.push(gate);
    return gate;
  }

  /** Resolves when `count` more transactions were forwarded to the node. */
  afterAdds(count) {
    const end = this.adds.length + count;
    const reached = new Promise((resolve) => {
      const watch = () => {
        if (this.adds.length < end) return;
        this.watchers.delete(watch);
        resolve();
      };
      this.watchers.add(watch);
      watch();
    });
    return inTime(`${count} transactions to leave`, reached);
  }

  /** Cuts every connection, and refuses new ones until `accept`. */
  async refuse() {
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
  }

  accept() {
    return this.#listen(this.port);
  }

  async close() {
    this.gates.forEach((gate) => gate.drop());
    if (this.server.listening) await this.refuse();
    this.pool.destroy();
  }
}

async function textOf(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
