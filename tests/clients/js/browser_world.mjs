// Fixtures of the browser tests: a real Chromium, and a web server on another origin than the
// gateway's. A page loads starknet.js as its own script, from the bundle that the package ships.
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import puppeteer from 'puppeteer-core';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const BUNDLE = new URL('node_modules/starknet/dist/index.global.js', import.meta.url);
/** The bundle defines one global, `starknet`. */
const PAGE = `<!doctype html>
<meta charset="utf-8">
<link rel="icon" href="data:,">
<title>a wallet</title>
<script src="/starknet.js"></script>`;

/** Serves the page under both names of this machine: 127.0.0.1 and localhost. */
export class Site {
  static async start() {
    const site = new Site();
    const bundle = await readFile(BUNDLE);
    site.server = createServer((request, response) => {
      const isScript = request.url === '/starknet.js';
      const type = isScript ? 'text/javascript' : 'text/html';
      // A cookie of this host. Cookies ignore ports, so it could reach the gateway.
      const headers = { 'content-type': type, 'set-cookie': 'session=of-the-wallet; Path=/' };
      response.writeHead(200, headers).end(isScript ? bundle : PAGE);
    });
    await new Promise((resolve) => site.server.listen(0, '127.0.0.1', resolve));
    const { port } = site.server.address();
    site.origin = `http://127.0.0.1:${port}`;
    site.otherOrigin = `http://localhost:${port}`;
    return site;
  }

  end() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }
}

/** A browser. Each page has its own profile, so that pages share no cache. */
export class Browser {
  static async start() {
    const browser = new Browser();
    browser.process = await puppeteer.launch({
      executablePath: CHROMIUM,
      // Tests may run as root, where Chromium has no sandbox. It loads only our own pages.
      args: ['--no-sandbox', '--disable-dev-shm-usage'],
    });
    return browser;
  }

  /** A page of `origin`. `sent` collects its requests, `headers` the headers as they were sent. */
  async open(origin) {
    const context = await this.process.createBrowserContext();
    const page = await context.newPage();
    page.setDefaultTimeout(120_000);
    const session = await page.createCDPSession();
    await session.send('Network.enable');
    page.sent = [];
    session.on('Network.requestWillBeSent', ({ requestId, request }) => {
      page.sent.push({ requestId, method: request.method, url: request.url });
    });
    // The headers as sent, including cookies and what the browser adds.
    page.headers = new Map();
    session.on('Network.requestWillBeSentExtraInfo', ({ requestId, headers }) => {
      page.headers.set(requestId, headers);
    });
    await page.goto(origin);
    await page.addScriptTag({ content: `(${inPage})()` });
    return page;
  }

  end() {
    return this.process.close();
  }
}

/** Runs in the page. Defines `read`, a plain call, and `wallet`, a provider that records responses.
 * */
function inPage() {
  const names = ['ratelimit', 'ratelimit-policy', 'retry-after', 'x-cache', 'x-chain-position'];
  names.push('x-request-id', 'date');
  const seen = (answer) => ({
    status: answer.status,
    headers: Object.fromEntries(names.map((name) => [name, answer.headers.get(name)])),
  });

  /** One call: its status, and the headers that the page may read. */
  window.read = async (url, { headers = {}, ...more } = {}) => {
    const answer = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: '{"jsonrpc":"2.0","id":1,"method":"starknet_chainId"}',
      ...more,
    });
    return { ...seen(answer), body: await answer.json() };
  };

  /** A starknet.js provider that waits as a 429 requests; `answers` holds every response. */
  window.wallet = (nodeUrl) => {
    const answers = [];
    const baseFetch = async (...request) => {
      for (;;) {
        const answer = await fetch(...request);
        answers.push({ ...seen(answer), at: performance.now() });
        if (answer.status !== 429) return answer;
        const seconds = Number(answer.headers.get('retry-after'));
        if (!(seconds >= 1)) throw new Error('it does not say how long to wait');
        await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      }
    };
    return { provider: new starknet.RpcProvider({ nodeUrl, baseFetch }), answers };
  };
}
