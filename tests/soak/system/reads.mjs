// Readers of every public surface, from many client addresses, at a constant rate.
import http from 'node:http';
import { feedUri, PUBLIC_FEEDS } from '../../clients/js/sidecar_content.mjs';
import { ask } from '../../crash/lib/sidecar.mjs';
import { LATE, LOST, UNHEALTHY } from './table.mjs';

/** Clients; each stays far below its quota of 180 reads a minute. */
export const CLIENTS = 200;
const TICK_MS = 25;
/** A client closes an idle connection long before the server does, after 60 s. */
const IDLE_MS = 20_000;
/** More in flight would only measure the queue of this program. */
const MAX_UNDERWAY = 400;
/** The part of the reads that have a connection of their own. */
const FRESH = 0.05;
/** The part of document requests that name what they have cached. */
const CONDITIONAL = 0.5;

/** The result of a request that threw: it had no answer in time. */
export const late = () => ({ lost: true, isLate: true, status: 0 });

/** The reason of a response that is no success: our codes, or XRPC's names in our spelling. */
export function reasonOf({ lost, isLate, status, json, text }) {
  if (lost) return isLate ? LATE : LOST;
  if (status < 400) return undefined;
  const error = json?.error;
  if (error?.data?.reason ?? error?.reason) return error.data?.reason ?? error.reason;
  if (typeof error === 'string') return error.replace(/\B([A-Z])/g, '_$1').toLowerCase();
  if (status === 503 && /"status"/.test(text)) return UNHEALTHY;
  return `status_${status}`;
}

const documents = (chance, podcasts) => {
  const feed = encodeURIComponent(feedUri(chance.one(PUBLIC_FEEDS), 'did:web:cards.example'));
  return chance.weighted([
    [4, { surface: 'feed', path: `/functions/getFeedSkeleton?feed=${feed}&limit=20` }],
    [3, { surface: 'podcast', path: `/functions/podcast-rss-feed?did=${chance.one(podcasts)}` }],
    [2, { surface: 'sitemap', path: '/sitemap.xml' }],
    [1, { surface: 'robots', path: '/robots.txt' }],
    [1, { surface: 'did document', path: '/.well-known/did.json' }],
    [1, { surface: 'health check', path: '/functions/health-check' }],
  ]);
};

export class Readers {
  /** `servers` have all surfaces; `questions` chooses reads of the chain. */
  constructor({ servers, questions, podcasts, outcomes, chance, rate }) {
    Object.assign(this, { servers, questions, podcasts, outcomes, chance, rate });
    this.clients = Array.from({ length: CLIENTS }, (_, at) => {
      const localAddress = `127.9.0.${1 + at}`;
      const pool = { keepAlive: true, maxSockets: 2, timeout: IDLE_MS };
      const agent = new http.Agent({ ...pool, localAddress });
      return { agent, fresh: new http.Agent({ localAddress }) };
    });
    this.etags = new Map();
    this.underway = new Set();
    this.skipped = 0;
    this.lastId = 0;
  }

  start() {
    this.began = Date.now();
    this.sent = 0;
    this.timer = setInterval(() => this.#tick(), TICK_MS);
  }

  async stop() {
    clearInterval(this.timer);
    await Promise.all(this.underway);
    this.clients.forEach(({ agent }) => agent.destroy());
  }

  #tick() {
    const due = Math.floor(((Date.now() - this.began) * this.rate) / 1000);
    for (; this.sent < due; this.sent += 1) {
      if (this.underway.size >= MAX_UNDERWAY) {
        this.skipped += 1;
        continue;
      }
      const one = this.#read().finally(() => this.underway.delete(one));
      this.underway.add(one);
    }
  }

  async #read() {
    const { chance } = this;
    const server = chance.one(this.servers);
    const client = chance.one(this.clients);
    const agent = chance.happens(FRESH) ? client.fresh : client.agent;
    const { surface, url, ...options } = chance.happens(0.75)
      ? this.#question(server)
      : this.#document(server);
    const began = Date.now();
    let answer = await ask(url, { ...options, agent }).catch(late);
    if (answer.lost && answer.isReused) {
      this.outcomes.repeat({ surface, instance: server.name, began });
      answer = await ask(url, { ...options, agent: client.fresh }).catch(late);
    }
    const ended = Date.now();
    const { etag } = answer.headers ?? {};
    if (etag) this.etags.set(url, etag);
    const { status } = answer;
    const reason = reasonOf(answer);
    this.outcomes.record({ surface, instance: server.name, began, ended, status, reason });
  }

  #question(server) {
    const { method, params } = this.questions.question();
    this.lastId += 1;
    const body = JSON.stringify({ jsonrpc: '2.0', id: this.lastId, method, params });
    const headers = { 'content-type': 'application/json' };
    return { surface: 'gateway', url: `${server.gateway}/rpc`, method: 'POST', headers, body };
  }

  #document(server) {
    const { surface, path } = documents(this.chance, this.podcasts);
    const url = server.sidecar + path;
    const etag = this.etags.get(url);
    const headers = etag && this.chance.happens(CONDITIONAL) ? { 'if-none-match': etag } : {};
    return { surface, url, headers };
  }
}
