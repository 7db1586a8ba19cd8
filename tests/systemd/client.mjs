// Constant load over keep-alive connections, at a fixed rate and not paced by responses (an open
// loop). It counts what a person would not notice: resets, connections that end before a response,
// refusals.

import net from 'node:net';

const QUESTIONS = [
  '"method":"starknet_blockNumber","params":[]',
  '"method":"starknet_chainId","params":[]',
  '"method":"starknet_getBlockWithTxHashes","params":["latest"]',
];
const TICK_MS = 5;
const LAST_ANSWER_MS = 20_000;

export class Load {
  constructor({ port, rate, connections }) {
    Object.assign(this, { port, rate, connections });
    this.idle = [];
    this.open = new Set();
    this.queue = [];
    this.sent = 0;
    this.answered = 0;
    this.wrong = {};
    this.longest = 0;
  }

  start() {
    this.began = performance.now();
    this.timer = setInterval(() => this.tick(), TICK_MS);
  }

  // The longest wait since the last call, in milliseconds.
  longestWait() {
    const waiting = [...this.queue, ...[...this.open].map((connection) => connection.request)];
    const now = performance.now();
    const waits = waiting.filter(Boolean).map((request) => now - request.due);
    const longest = Math.max(this.longest, ...waits);
    this.longest = 0;
    return Math.round(longest);
  }

  // Sends no further requests, and waits for the outstanding ones.
  async stop() {
    clearInterval(this.timer);
    const deadline = performance.now() + LAST_ANSWER_MS;
    const outstanding = () => this.sent - this.answered - this.lost();
    while (outstanding() > 0 && performance.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    }
    for (let left = outstanding(); left > 0; left -= 1) this.count('never answered');
    for (const connection of this.open) connection.socket.destroy();
  }

  lost() {
    return Object.values(this.wrong).reduce((sum, count) => sum + count, 0);
  }

  count(what) {
    this.wrong[what] = (this.wrong[what] ?? 0) + 1;
  }

  tick() {
    const now = performance.now();
    const due = Math.floor(((now - this.began) * this.rate) / 1000);
    for (; this.sent < due; this.sent += 1) {
      this.queue.push({ id: this.sent, due: this.began + (this.sent * 1000) / this.rate });
    }
    this.dispatch();
  }

  dispatch() {
    while (this.queue.length > 0) {
      const connection = this.idle.shift();
      if (connection) {
        connection.ask(this.queue.shift());
      } else if (this.open.size < this.connections) {
        new Connection(this).ask(this.queue.shift());
      } else {
        return;
      }
    }
  }
}

class Connection {
  constructor(load) {
    this.load = load;
    this.request = null;
    this.text = '';
    load.open.add(this);
    this.socket = net.connect({ port: load.port, host: '127.0.0.1', noDelay: true });
    this.socket.setEncoding('latin1');
    this.socket.on('data', (text) => this.read(text));
    this.socket.on('error', (error) => this.ends(error.code));
    this.socket.on('end', () => this.ends('closed before the answer'));
    this.socket.on('close', () => this.ends('closed before the answer'));
  }

  ask(request) {
    this.request = request;
    const question = QUESTIONS[request.id % QUESTIONS.length];
    const body = `{"jsonrpc":"2.0","id":${request.id},${question}}`;
    const head = 'POST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n';
    this.socket.write(`${head}Content-Length: ${body.length}\r\n\r\n${body}`);
  }

  read(text) {
    this.text += text;
    const end = this.text.indexOf('\r\n\r\n');
    if (end < 0) return;
    const head = this.text.slice(0, end);
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? Number.NaN);
    const body = this.text.slice(end + 4);
    if (body.length < length) return;
    this.text = '';
    const { request, load } = this;
    this.request = null;
    const status = head.slice(9, 12);
    if (!request || body.length !== length) load.count('bytes that nobody requested');
    else if (status !== '200') load.count(`status ${status}`);
    else if (!body.includes(`"id":${request.id},`) || !body.includes('"result":')) {
      load.count("another question's answer");
    } else {
      load.answered += 1;
      load.longest = Math.max(load.longest, performance.now() - request.due);
    }
    if (/\r\nconnection: close/i.test(head)) this.leave();
    else load.idle.push(this);
    load.dispatch();
  }

  // An orderly close of an idle connection does no harm. Everything else is counted.
  ends(how) {
    if (!this.load.open.has(this)) return;
    if (this.request) this.load.count(how);
    else if (how.startsWith('E')) this.load.count(`${how} between two requests`);
    this.leave();
  }

  leave() {
    this.load.open.delete(this);
    this.load.idle = this.load.idle.filter((connection) => connection !== this);
    this.socket.destroy();
  }
}
