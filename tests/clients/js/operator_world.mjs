// What the tests of the operator's page stand on: the whole system before a real node, and a real
// Chromium before it, of which is noted all that it asks for and complains of. Chromium is named by
// CHROMIUM; the rest is the relay's world.
import puppeteer from 'puppeteer-core';
import { ec, hash, stark } from 'starknet';
import { Portcullis, eventually, post } from './relay_world.mjs';
import { fresh } from './relay_wallet.mjs';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** All surfaces; started again, they are where they were. */
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

  /** A drip of the faucet to an account that nobody used before: a real write. */
  async drip() {
    const key = ec.starkCurve.getStarkKey(stark.randomAddress());
    const recipient = hash.calculateContractAddressFromHash(key, this.pins.account_class, [key], 0);
    const body = { identity: fresh(), recipient, public_key: key };
    const { json } = await this.post('/faucet-drip', body);
    return { recipient, ...json };
  }
}

/** Chromium without a window. */
export function browse() {
  return puppeteer.launch({
    executablePath: CHROMIUM,
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
  });
}

/** A tab on the operator's page, and what it did. */
export class Tab {
  static async open(browser, url, { width = 1280, height = 900, media = [], login } = {}) {
    const tab = new Tab();
    Object.assign(tab, { url, asked: [], complaints: [], page: await browser.newPage() });
    const { page } = tab;
    await page.setViewport({ width, height });
    await page.emulateMediaFeatures(media);
    if (login) await page.authenticate(login);
    // what the browser itself was kept from doing
    await page.evaluateOnNewDocument(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
      });
    });
    page.on('request', (request) => tab.asked.push(request.url()));
    page.on('console', (message) => {
      if (['error', 'warn'].includes(message.type())) tab.complaints.push(message.text());
    });
    page.on('pageerror', (error) => tab.complaints.push(String(error)));
    tab.answer = await page.goto(url);
    return tab;
  }

  /** The text of what a selector finds, one line a line. */
  text(selector) {
    return this.page.$eval(selector, (element) => element.innerText);
  }

  /** Waits until that text is as wanted, and gives it. */
  until(what, selector, wanted) {
    return eventually(what, async () => {
      const text = await this.text(selector).catch(() => '');
      return wanted(text) ? text : null;
    });
  }

  /** The value beside a name on the card of this title. */
  value(card, name) {
    return this.page.$$eval(`article[aria-label="${card}"] .stats div`, (all, wanted) => {
      const found = all.find((one) => one.querySelector('dt').innerText === wanted);
      return found?.querySelector('dd').innerText ?? null;
    }, name);
  }

  close() {
    return this.page.close();
  }
}
