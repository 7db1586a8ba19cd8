// A document that is read in a transaction, next to a faucet on the same SQLite file: a reader that
// a fault leaves in its snapshot would show the past, and let the faucet pay again.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { drip } from '../crash/lib/operations.mjs';
import { ask } from '../crash/lib/sidecar.mjs';

const run = promisify(execFile);
const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
const PAGES = 400;
/** More requests than a SQLite store has readers. */
const READS = 8;
const REPEATS = 5;

export class Sitemap {
  name = 'sitemap';
  made = 0;

  static async on(service) {
    const sitemap = Object.assign(new Sitemap(), { service });
    await sitemap.#import(Array.from({ length: PAGES }, (_, at) => `page-${at}`));
    return sitemap;
  }

  async #import(names) {
    const { folder, env } = this.service.world;
    const file = `${folder}/pages.ndjson`;
    const page = { type: 'page', lastmod_at: '2026-01-01T00:00:00Z', images: [] };
    const record = (name) => JSON.stringify({ ...page, loc: `http://127.0.0.1:8082/${name}` });
    writeFileSync(file, `${names.map(record).join('\n')}\n`);
    const args = ['store', 'import', '--config', `${folder}/portcullis.toml`, file];
    await run(PORTCULLIS, args, { env: { ...process.env, ...env } });
  }

  async fresh() {
    return {};
  }

  send() {
    return ask(`${this.service.sidecar}/sitemap.xml?page=1`, { agent: false });
  }

  isTrue(answer) {
    const { lost, status, text } = answer;
    if (lost || status === 503) return;
    assert.equal(this.failed(answer), undefined, `${status} ${text.slice(-200)}`);
  }

  failed({ status, text, why }) {
    const isWhole = status === 200 && text.endsWith('</urlset>\n');
    return isWhole || (status === 200 && /<\/urlset>\s*$/.test(text)) ? undefined : (why ?? status);
  }

  next() {
    return this.send().then((answer) => this.failed(answer));
  }

  /** Every reader shows the newest page, and one recipient gets one drip. */
  async settle() {
    this.made += 1;
    const name = `fresh-${this.made}`;
    await this.#import([name]);
    const answers = await Promise.all(Array.from({ length: READS }, () => this.send()));
    const stale = answers.filter(({ text }) => !text?.includes(`/${name}<`));
    assert.equal(stale.length, 0, `${stale.length} of ${READS} are of the past or cut off`);
    const operation = drip();
    const paid = new Set();
    for (let count = 0; count <= REPEATS; count += 1) {
      const { status, hash } = await this.service.post(operation);
      if (status === 200) paid.add(hash);
    }
    assert.equal(paid.size, 1, 'one drip for one recipient');
  }
}
