// A proxy in front of a gateway that caches for too long: the judge must find its responses wrong,
// or it detects nothing.
import http from 'node:http';

/** Longer than any bound the gateway promises. */
const KEEP_MS = 8_000;

export class Liar {
  static async before(gateway) {
    const liar = new Liar();
    liar.gateway = gateway;
    liar.pool = new http.Agent({ keepAlive: true });
    liar.cached = new Map();
    liar.server = http.createServer((request, response) => {
      liar.#serve(request, response).catch(() => request.socket.destroy());
    });
    await new Promise((resolve) => liar.server.listen(0, '127.0.0.1', resolve));
    liar.url = `http://127.0.0.1:${liar.server.address().port}/rpc`;
    return liar;
  }

  async #serve(request, response) {
    const body = await textOf(request);
    const { id, method, params } = JSON.parse(body);
    const key = `${method} ${JSON.stringify(params)}`;
    const cached = this.cached.get(key);
    if (cached && Date.now() < cached.until) {
      response.writeHead(200, { 'x-cache': 'hit' });
      response.end(cached.text.replace(/"id":\d+/, `"id":${id}`));
      return;
    }
    const { status, cache, text } = await this.#forward(body);
    if (isCacheable(method, params) && text.includes('"ACCEPTED_ON_')) {
      this.cached.set(key, { text, until: Date.now() + KEEP_MS });
    }
    response.writeHead(status, { 'x-cache': cache }).end(text);
  }

  #forward(body) {
    return new Promise((resolve, reject) => {
      const headers = { 'content-type': 'application/json' };
      const options = { method: 'POST', agent: this.pool, headers };
      const request = http.request(this.gateway, options, (answer) => {
        const cache = answer.headers['x-cache'] ?? 'miss';
        const whole = (text) => resolve({ status: answer.statusCode, cache, text });
        textOf(answer).then(whole, reject);
      });
      request.once('error', reject);
      request.end(body);
    });
  }

  close() {
    this.server.closeAllConnections();
    this.pool.destroy();
    return new Promise((resolve) => this.server.close(resolve));
  }
}

/** Cacheable by a correct gateway, too, as long as the chain does not change. */
const isCacheable = (method, { block_id: block }) =>
  method === 'starknet_getTransactionReceipt' ||
  (method === 'starknet_getBlockWithTxHashes' && typeof block === 'object');

async function textOf(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
