// A way to PostgreSQL that counts the client's messages, and does something to the k-th of them.
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import net from 'node:net';
import { STALL_MS } from './calls.mjs';

const SSL_REQUEST = 80877103;
/** Messages that the server answers at once: Query and Sync. */
const ANSWERED = ['Q', 'S'];

/** Splits what a client sends into messages. The first ones have no type. */
class Messages {
  buffer = Buffer.alloc(0);
  started = false;

  *take(chunk) {
    this.buffer = Buffer.concat([this.buffer, chunk]);
    for (;;) {
      const start = this.started ? 1 : 0;
      if (this.buffer.length < start + 4) return;
      const length = start + this.buffer.readUInt32BE(start);
      if (this.buffer.length < length) return;
      const bytes = this.buffer.subarray(0, length);
      const type = this.started ? String.fromCharCode(bytes[0]) : 'start';
      if (!this.started) this.started = bytes.readUInt32BE(4) !== SSL_REQUEST;
      this.buffer = this.buffer.subarray(length);
      yield { type, bytes };
    }
  }
}

export class PostgresWay {
  /** Listens in a new folder, in front of the server with its socket in another one. */
  static async before(url, folder) {
    const way = new PostgresWay();
    const encoded = /@([^/]+)\//.exec(url)[1];
    way.target = `${decodeURIComponent(encoded)}/.s.PGSQL.5432`;
    mkdirSync(folder, { recursive: true });
    way.url = url.replace(encoded, folder.replaceAll('/', '%2F'));
    way.direct = url;
    way.types = [];
    way.sockets = new Set();
    way.server = net.createServer((client) => way.#serve(client));
    way.server.listen(`${folder}/.s.PGSQL.5432`);
    await once(way.server, 'listening');
    return way;
  }

  /** Counts from now on, and does this to the k-th message. */
  arm(fault = {}) {
    this.types = [];
    this.fault = fault;
    this.hit = false;
    /** Resolves when a stalled message has been passed on. */
    this.over = Promise.resolve();
  }

  /** Leaves everything alone; returns whether the fault happened. */
  async disarm() {
    this.fault = undefined;
    await this.over;
    return this.hit;
  }

  #serve(client) {
    const server = net.connect(this.target);
    const messages = new Messages();
    const link = { client, server, fate: undefined };
    for (const [one, other] of [[client, server], [server, client]]) {
      this.sockets.add(one);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        this.sockets.delete(one);
        other.destroy();
      });
    }
    let passed = Promise.resolve();
    client.on('data', (chunk) => {
      for (const message of messages.take(chunk)) {
        passed = passed.then(() => this.#pass(link, message));
      }
    });
    server.on('data', (chunk) => {
      if (link.fate === 'drop') client.destroy();
      if (link.fate !== 'hang') client.write(chunk);
    });
  }

  async #pass(link, { type, bytes }) {
    if (this.fault && type !== 'start' && !this.hit) {
      this.types.push(type);
      if (this.types.length === this.fault.k) await this.#tamper(link);
    }
    if (!link.server.destroyed) link.server.write(bytes);
  }

  async #tamper(link) {
    const { act } = this.fault;
    this.hit = true;
    if (act === 'cut') link.client.destroy();
    else if (act === 'stall') {
      this.over = new Promise((resolve) => setTimeout(resolve, STALL_MS));
      await this.over;
    } else link.fate = act;
  }

  /** What can happen to the k-th message of a clean run. */
  acts(k) {
    const isAnswered = ANSWERED.includes(this.types[k - 1]);
    return isAnswered ? ['cut', 'drop', 'hang', 'stall'] : ['cut'];
  }

  close() {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
  }
}
