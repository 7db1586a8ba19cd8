// Fixtures of the operator page's tests: the whole system in front of a real node, and a real
// Chromium whose requests and errors are recorded. CHROMIUM names Chromium; the rest is as in the
// relay's fixtures.
import puppeteer from 'puppeteer-core';
import { ec, hash, stark } from 'starknet';
import { Portcullis, eventually, post } from './relay_world.mjs';
import { fresh } from './relay_wallet.mjs';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** All surfaces; a restart reuses their addresses. */
export class System extends Portcullis {
  async serve() {
    for (const surface of ['gateway', 'relay', 'sidecar', 'admin']) {
      const key = `PORTCULLIS__${surface.toUpperCase()}__LISTEN`;
      this.env[key] = this[surface] ? new URL(this[surface]).host : '127.0.0.1:0';
    }
    await super.serve();
  }

  /** One read through the gateway. */
  read(method, params = []) {
    return post(this.gateway, { jsonrpc: '2.0', id: 1, method, params });
  }

  /** A faucet drip to a fresh account: a real write. */
  async drip() {
    const key = ec.starkCurve.getStarkKey(stark.randomAddress());
    const recipient = hash.calculateContractAddressFromHash(key, this.pins.account_class, [key], 0);
    const body = { identity: fresh(), recipient, public_key: key };
    const { json } = await this.post('/faucet-drip', body);
    return { recipient, ...json };
  }
}

/** A headless Chromium. */
export function browse() {
  return puppeteer.launch({
    executablePath: CHROMIUM,
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
  });
}

/** A tab on the operator's page, and a record of what it did. */
export class Tab {
  static async open(browser, url, { width = 1280, height = 900, media = [], login } = {}) {
    const tab = new Tab();
    Object.assign(tab, { url, requested: [], complaints: [], page: await browser.newPage() });
    const { page } = tab;
    await page.setViewport({ width, height });
    await page.emulateMediaFeatures(media);
    if (login) await page.authenticate(login);
    // What the browser itself blocked.
    await page.evaluateOnNewDocument(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
      });
    });
    page.on('request', (request) => tab.requested.push(request.url()));
    page.on('console', (message) => {
      if (['error', 'warn'].includes(message.type())) tab.complaints.push(message.text());
    });
    page.on('pageerror', (error) => tab.complaints.push(String(error)));
    tab.answer = await page.goto(url);
    return tab;
  }

  /** The text of a selector's matches, one match per line. */
  text(selector) {
    return this.page.$eval(selector, (element) => element.innerText);
  }

  /** Waits until that text passes the check, and returns it. */
  until(what, selector, wanted) {
    return eventually(what, async () => {
      const text = await this.text(selector).catch(() => '');
      return wanted(text) ? text : null;
    });
  }

  /** The value next to a name on the card with this title. */
  value(card, name) {
    return this.page.$$eval(`article[aria-label="${card}"] .stats div`, (all, wanted) => {
      const found = all.find((one) => one.querySelector('dt').innerText === wanted);
      return found?.querySelector('dd').innerText ?? null;
    }, name);
  }

  /** The parts that are wider than their place, the page itself included. */
  overflows() {
    return this.page.evaluate(() => {
      const parts = document.querySelectorAll('html, .card, .panel, .top, .rows, .part, main');
      document.querySelectorAll('details').forEach((one) => { one.open = true; });
      return [...parts].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) =>
        `${one.tagName} ${one.className || one.id} ${one.scrollWidth} > ${one.clientWidth}`);
    });
  }

  close() {
    return this.page.close();
  }
}
