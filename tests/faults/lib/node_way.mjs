// A way to the node that counts the calls, and does something to the k-th of them.
import { once } from 'node:events';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { hex } from '../../crash/lib/stark.mjs';
import { STALL_MS } from './calls.mjs';

/** Longer than a call may take. */
const HANG_MS = 12_000;

export class NodeWay {
  static async before(target) {
    const way = new NodeWay();
    Object.assign(way, { target, calls: 0, agent: new http.Agent({ keepAlive: true }) });
      /** Transactions that the node took: when they were passed on, and their hashes. */
    way.adds = [];
    way.server = http.createServer((request, response) => {
      way.#serve(request, response).catch(() => request.socket.destroy());
    });
    way.server.listen(0, '127.0.0.1');
    await once(way.server, 'listening');
    way.url = `http://127.0.0.1:${way.server.address().port}/rpc`;
    return way;
  }

  arm(fault = {}) {
    Object.assign(this, { calls: 0, fault, hit: false, over: Promise.resolve() });
  }

  async disarm() {
    this.fault = undefined;
    await this.over;
    return this.hit;
  }

  /** The fault of this call, if it is the one. */
  #take() {
    if (!this.fault || this.hit) return undefined;
    this.calls += 1;
    this.hit = this.calls === this.fault.k;
    return this.hit ? this.fault.act : undefined;
  }

  async #serve(request, response) {
    const body = await text(request);
    const act = this.#take();
    if (act === 'cut') return request.socket.destroy();
    if (act === 'stall') {
      this.over = pause(STALL_MS);
      await this.over;
    }
    if (act === 'refuse') {
      response.writeHead(502, { 'content-type': 'text/html' });
      return response.end('<html>bad gateway</html>');
    }
    const add = { at: performance.timeOrigin + performance.now() };
    const answer = await this.#forward(body);
    const { transaction_hash: hash } = JSON.parse(answer).result ?? {};
    if (/"starknet_add/.test(body) && hash) this.adds.push({ ...add, hash: hex(hash) });
    if (act === 'drop') return request.socket.destroy();
    if (act === 'hang') return pause(HANG_MS, undefined, { ref: false });
    response.writeHead(200, { 'content-type': 'application/json' });
    return response.end(answer);
  }

  #forward(body) {
    return new Promise((resolve, reject) => {
      const length = Buffer.byteLength(body);
      const headers = { 'content-type': 'application/json', 'content-length': length };
      const options = { method: 'POST', agent: this.agent, headers };
      const request = http.request(this.target, options, (answer) => {
        text(answer).then(resolve, reject);
      });
      request.once('error', reject);
      request.end(body);
    });
  }

  acts() {
    return ['cut', 'refuse', 'drop', 'hang', 'stall'];
  }

  close() {
    this.server.close();
    this.server.closeAllConnections();
    this.agent.destroy();
  }
}
