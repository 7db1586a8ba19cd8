// The alerts that a real Prometheus fires by the shipped rules, and whether a fault allows each.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, openSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const PYTHON = process.env.VENV ? `${process.env.VENV}/bin/python` : 'python3';
const SCRIPT = fileURLToPath(new URL('../prometheus.py', import.meta.url));
const EVERY_MS = 5_000;
/** From an event to a firing alert, in addition to its rule: a scrape, and an evaluation. */
export const INTERVAL_S = 5;

export class Alerts {
  /** Starts a Prometheus that scrapes the servers. */
  static async start({ folder, servers, windows }) {
    const alerts = new Alerts();
    mkdirSync(folder, { recursive: true });
    const targets = servers.map(({ target }) => target);
    const errors = openSync(`${folder}/helper.log`, 'a');
    const args = ['-B', SCRIPT, folder, `${INTERVAL_S}s`, ...targets];
    alerts.child = spawn(PYTHON, args, { stdio: ['pipe', 'pipe', errors] });
    alerts.gone = once(alerts.child, 'exit');
    const lines = createInterface({ input: alerts.child.stdout });
    const early = alerts.gone.then(() => {
      throw new Error(`Prometheus did not start: see ${folder}`);
    });
    early.catch(() => {});
    [alerts.url] = await Promise.race([once(lines, 'line'), early]);
    alerts.names = new Map(servers.map(({ target, name }) => [target, name]));
    alerts.windows = windows;
    /** `alert instance` to when it was first and last seen, and the faults that allowed it. */
    alerts.fired = new Map();
    alerts.unreachable = 0;
    return alerts;
  }

  watch() {
    this.timer = setInterval(() => {
      this.poll().catch(() => (this.unreachable += 1));
    }, EVERY_MS);
  }

  /** Reads what fires now. */
  async poll() {
    for (const { metric } of await this.#query('ALERTS{alertstate="firing"}')) {
      this.#saw(metric.alertname, this.names.get(metric.instance) ?? 'all', Date.now());
    }
  }

  #saw(alert, instance, at) {
    const key = `${alert} ${instance}`;
    const fresh = { alert, instance, first: at, faults: new Set(), unexplained: 0 };
    const entry = this.fired.get(key) ?? fresh;
    this.fired.set(key, entry);
    entry.last = at;
    const fault = this.windows.allow(alert, at);
    if (fault) entry.faults.add(fault);
    else entry.unexplained += 1;
  }

  /** Whether an alert has been seen in a span of time. */
  async firedIn(alert, from, to) {
    const range = `[${Math.ceil((to - from) / 1000)}s] @ ${to / 1000}`;
    const series = `ALERTS{alertname="${alert}",alertstate="firing"}${range}`;
    return (await this.#query(`count_over_time(${series})`)).length > 0;
  }

  /** The servers that were not scraped at the end. */
  async unscraped() {
    const up = await this.#query('up == 1');
    const seen = new Set(up.map(({ metric }) => metric.instance));
    return [...this.names].filter(([target]) => !seen.has(target)).map(([, name]) => name);
  }

  async #query(query) {
    const answer = await fetch(`${this.url}/query?${new URLSearchParams({ query })}`);
    const { status, error, data } = await answer.json();
    if (status !== 'success') throw new Error(error);
    return data.result;
  }

  async end() {
    clearInterval(this.timer);
    this.child.stdin.end();
    await this.gone;
  }
}
