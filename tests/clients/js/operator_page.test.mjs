// The operator's page in a real browser, in front of the whole running system: it shows the current
// state, survives a restart, loads nothing from other servers, and fits on a phone.
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { System, Tab, browse } from './operator_world.mjs';
import { Node, endAll, eventually } from './relay_world.mjs';

let node;
let system;
let browser;

before(async () => {
  node = await Node.start();
  const env = {
    PORTCULLIS__GATEWAY__REQUESTS_PER_MINUTE: '300',
    PORTCULLIS__RELAY__FAUCET_PER_DAY: '1000',
  };
  system = await System.start(node, { env });
  browser = await browse();
});

after(async () => {
  await browser?.close();
  await endAll(system, node);
});

/** Opens the page, closes it after the test, and asserts that the browser reported no error. */
async function watching(options, what) {
  const tab = await Tab.open(browser, `${system.admin}/`, options);
  try {
    await tab.until('the first snapshot', '#status', (text) => text === 'ok');
    await what(tab);
    assert.deepEqual(tab.complaints, [], 'the browser has nothing to complain of');
    const elsewhere = tab.requested.filter((url) => !url.startsWith(`${system.admin}/`));
    assert.deepEqual(elsewhere, [], 'no other server is queried');
  } finally {
    await tab.close();
  }
}

const number = (text) => Number(text?.match(/[\d.]+/)?.[0] ?? 0);

test('numbers change with requests', () => watching({}, async (tab) => {
  const path = () => tab.page.$eval('article[aria-label="gateway"] path.main',
    (line) => line.getAttribute('d'));
  assert.equal(number(await tab.value('gateway', 'Requests')), 0, 'nothing was requested yet');
  for (let round = 0; round < 60; round += 1) await system.read('starknet_blockNumber');
  const rate = async () => number(await tab.value('gateway', 'Requests'));
  await eventually('the rate of requests', rate);
  await eventually('a latency', async () => /µs|ms|s/.test(await tab.value('gateway', 'p99')));
  await eventually('calls to the node', async () => number(await tab.value('Node', 'Calls')));
  await eventually('a line', async () => (await path()).includes('L'));
  const before = await path();
  await eventually('the plot to move', async () => await path() !== before);
  const words = await tab.page.$eval('article[aria-label="gateway"] [role=slider]',
    (plot) => plot.getAttribute('aria-label'));
  assert.match(words, /Requests per second.*requests: now .*highest/, 'the plot has a description');
  await tab.until('who asks', '#client-cards', (text) => text.includes('127.0.0.0/24'));
  assert.ok(!(await tab.text('body')).includes('127.0.0.1/'), 'no client is shown in full');
}));

test('before its first data the page says that it is loading', async () => {
  const page = await browser.newPage();
  try {
    await page.setRequestInterception(true);
    page.on('request', (request) => request.url().endsWith('/events') || request.continue());
    await page.goto(`${system.admin}/`, { waitUntil: 'domcontentloaded' });
    await page.waitForSelector('#errors-panel .note');
    const texts = await page.$$eval('#status, .note', (all) => all.map((one) => one.textContent));
    assert.ok(texts.includes('loading') && texts.includes('Loading.'), texts.join());
    assert.ok(!texts.some((text) => /No refusals|None since/.test(text)), texts.join());
  } finally {
    await page.close();
  }
});

test('refusals appear by reason', () => watching({}, async (tab) => {
  await system.read('devnet_mint');
  await tab.until('a method that is not allowed', '#refusals-panel',
    (text) => text.includes('method_not_allowed'));
  for (let round = 0; round < 310; round += 1) await system.read('starknet_specVersion');
  await tab.until('the rate limit', '#refusals-panel', (text) => text.includes('rate_limited'));
  const bars = await tab.page.$$eval('#client-cards .bar.bad', (all) => all.length);
  assert.equal(bars, 1, 'the client at its limit is marked');
}));

test('a refused webhook appears with its reason', () => watching({}, async (tab) => {
  const { page } = tab;
  assert.equal(await page.$eval('#webhooks-panel', (panel) => panel.hidden), true);
  const answer = await fetch(`${system.sidecar}/functions/age-verifier-webhook`);
  assert.equal(answer.status, 405);
  await tab.until('the reason', '#webhooks-panel', (text) => text.includes('wrong_http_method'));
}));

test('a write is found by each of its fields', () => watching({}, async (tab) => {
  const { page } = tab;
  const written = [await system.drip(), await system.drip()];
  for (const { ok, transaction_hash: sent } of written) assert.ok(ok && sent !== '', 'written');
  await system.post('/mint-card', { recipient: '0x123', card_id: '1' });
  const rows = () => page.$$eval('#journal-table tbody tr',
    (all) => all.map((row) => row.innerText));
  await eventually('both writes', async () => (await rows()).length === 2
    && (await rows()).every((row) => row.includes('faucet-drip') && row.includes('succeeded')));
  const search = async (what, wanted) => {
    await page.$eval('#journal-form input', (field, value) => { field.value = value; }, what);
    await page.click('#journal-form button:not(.plain)');
    await eventually(`what is found by ${what}`, async () => wanted(await rows()));
  };
  const [{ transaction_hash: hash }, { recipient }] = written;
  const short = (felt) => felt.replace(/^0x0+/, '0x');
  await search(hash, (found) => found.length === 1 && found[0].includes(short(hash)));
  const first = (await rows())[0].match(/\d+/)[0];
  await search(recipient, (found) => found.length === 1 && found[0].includes(short(recipient)));
  await search(first, (found) => found.length === 1 && found[0].includes(short(hash)));
  await search('0xdead', (found) => found.length === 0);
  await tab.until('the note that nothing matches', '#journal-note', (text) => text.startsWith('No matching'));
  await page.click('#journal-form [type=reset]');
  await eventually('all again', async () => (await rows()).length === 2);
  await page.select('#journal-form [name=state]', 'reverted');
  await eventually('none reverted', async () => (await rows()).length === 0);
  await page.select('#journal-form [name=state]', 'refused');
  await eventually('the refusal', async () => (await rows()).some((row) => row.includes('mint-card')
    && row.includes('refused')));
  await page.select('#journal-form [name=state]', 'succeeded');
  await page.select('#journal-form [name=operation]', 'faucet-drip');
  await eventually('by operation', async () => (await rows()).length === 2);
  await page.click('#journal-table tbody button');
  await tab.until('its steps', '#journal-table .steps', (text) =>
    ['intended', 'sent', 'accepted', 'succeeded'].every((step) => text.includes(step)));
}));

test('an invalid search reports an error, markup stays text', () => watching({}, async (tab) => {
  const markup = '<img src=x onerror=a()>';
  await tab.page.$eval('#journal-form input', (field, text) => { field.value = text; }, markup);
  // The response is a 400, which the browser logs as a network error.
  await tab.page.click('#journal-form button:not(.plain)');
  await tab.until('what is wrong', '#journal-note', (text) => text.startsWith('hash is 0x'));
  assert.equal(await tab.page.$('#journal img'), null, 'no markup was made');
  tab.complaints = tab.complaints.filter((one) => !one.includes('status of 400'));
}));

test('the browser blocks markup and other servers', async () => {
  const tab = await Tab.open(browser, `${system.admin}/`);
  const markup = await tab.page.evaluate(() => {
    try {
      document.body.innerHTML = '<b>markup</b>';
      return 'taken';
    } catch (error) {
      return error.name;
    }
  });
  assert.equal(markup, 'TypeError', 'text does not become markup');
  const elsewhere = await tab.page.evaluate((url) =>
    fetch(url).then(() => 'sent', () => 'blocked'), system.gateway.replace('/rpc', '/healthz'));
  assert.equal(elsewhere, 'blocked', 'no other server can be queried');
  assert.ok(tab.complaints.some((one) => one.includes('connect-src')), 'such a breach is noted');
  await tab.close();
});

test('pins and signers appear as the relay proves them', () => watching({}, async (tab) => {
  await tab.until('the proof', '#pins-panel', (text) => /all \d+ proven/.test(text));
  assert.ok(!(await tab.text('#pins-panel')).includes('chain_id'), 'one line says it while all hold');
  await tab.page.click('#pins-panel summary');
  const pins = await tab.text('#pins-panel');
  for (const part of ['chain_id', 'PORTCULLIS_DEV', 'registry_owner']) {
    assert.ok(pins.includes(part), `${part} is among the pins`);
  }
  const signers = await tab.text('#signers-panel');
  for (const role of ['owner', 'verifier', 'faucet']) assert.ok(signers.includes(role), role);
  assert.match(signers, /[\d.,]+ STRK/, 'balances are known');
  assert.match(signers, /Used of the budgets of a day: faucet [\d.]+ %\.$/, 'and the only budget');
}));

test('a reload appears key by key, a mistake as an error', () => watching({}, async (tab) => {
  // What the environment overrides does not change with the file.
  const change = (key, value) => `${key} = ${value}\n`;
  const text = await readFile(system.config, 'utf8');
  const changed = text.replace('[gateway]\n', `[gateway]\n${change('max_in_flight_per_client', 7)}`)
    .replace('[node]\n', `[node]\n${change('max_idle', 3)}`)
    .replace('[sidecar]\n', `[sidecar]\n${change('requests_per_minute', 77)}`);
  await writeFile(system.config, changed);
  system.child.process.kill('SIGHUP');
  const shown = await tab.until('the changes', '#configuration-panel',
    (said) => said.includes('node.max_idle'));
  assert.match(shown, /sidecar\.requests_per_minute\s+600\s+77\s+now/);
  assert.match(shown, /node\.max_idle\s+\d+\s+3\s+after a restart/);
  await tab.until('the new limit', '#client-cards', (said) => said.includes('77 requests per'));
  await writeFile(system.config, `${changed}\n[nonsense]\n`);
  system.child.process.kill('SIGHUP');
  await tab.until('the error', '#errors-panel', (said) => said.includes('reload failed'));
  await tab.until('the verdict', '#status', (said) => said === 'degraded');
  await tab.until('the banner', '#troubles', (said) => said.includes('reload failed'));
  const link = () => tab.page.$eval('#troubles a', ({ href }) => href);
  assert.equal(await link(), `${system.admin}/runbook#portcullisconfigreloadfailed`);
  system.child.process.kill('SIGHUP');
  await tab.until('equal lines as one', '#errors-panel', (said) => /\t2\t|\s2\s.*first at/.test(said));
  await tab.until('that none is new', '#configuration-panel', (said) => said.includes('Reload failed'));
  await writeFile(system.config, text);
  system.child.process.kill('SIGHUP');
  await tab.until('the end', '#status', (said) => said === 'ok');
}));

test('times are in UTC wherever the browser is', () => watching({}, async (tab) => {
  const shown = async (zone) => {
    await tab.page.emulateTimezone(zone);
    return tab.page.$eval('#errors-panel time', (one) => [one.innerText, one.title]);
  };
  for (const zone of ['America/New_York', 'Asia/Kathmandu']) {
    await tab.page.reload();
    await tab.until('a line', '#errors-panel', (said) => said.includes('reload failed'));
    const [time, whole] = await shown(zone);
    assert.ok(whole.includes(`T${time}.`), `${zone}: ${time} of ${whole}`);
  }
  assert.match(await tab.text('footer'), /All times are UTC/);
}));

test('the page recovers after a restart of the server', async () => {
  const tab = await Tab.open(browser, `${system.admin}/`);
  await tab.until('it is connected', '#status', (text) => text === 'ok');
  await system.stop();
  await tab.until('the lost connection', '#status', (text) => text.startsWith('not connected, last update '));
  await system.serve();
  await tab.until('it is connected again', '#status', (text) => text === 'ok');
  await tab.until('the new process', '#facts', (text) => /Uptime\s+\d+ s/.test(text));
  const other = tab.complaints.filter((one) => !one.includes('net::ERR_'));
  assert.deepEqual(other, [], 'only the lost connection is complained of');
  await tab.close();
});

test('fits a phone and a wide screen, by day and night', async () => {
  // More reasons than are shown at once.
  const { gateway } = system;
  const send = (body, type = 'application/json') =>
    fetch(gateway, { method: 'POST', headers: { 'content-type': type }, body });
  await Promise.all([send('{'), send('[]'), send('{}'), send('{}', 'text/plain'), fetch(gateway),
    fetch(`${gateway}/nowhere`), system.read('devnet_mint')]);
  for (const scheme of ['light', 'dark']) {
    const media = [{ name: 'prefers-color-scheme', value: scheme },
      { name: 'prefers-reduced-motion', value: 'reduce' }];
    for (const width of [320, 360, 390, 768, 1280, 1920, 2560]) {
      await watching({ width, media }, async (tab) => {
        await tab.until('the pins', '#pins-panel', (text) => text.includes('proven'));
        await tab.until('five reasons', '#refusals-panel', (text) => text.includes('Show all'));
        assert.equal(await tab.page.$$eval('#refusals-panel tbody tr', (all) => all.length), 5);
        const [page, window, height] = await tab.page.evaluate(() =>
          [document.documentElement.scrollWidth, innerWidth, document.documentElement.scrollHeight]);
        assert.ok(page <= window, `${scheme} ${width}: it scrolls sideways, ${page} > ${window}`);
        if (width === 390) assert.ok(height < 3500, `${height} pixels to scroll on a phone`);
        // A second line begins below the middle of the first.
        const broken = await tab.page.$$eval('.stats dd, td .pill', (all) => {
          const memory = all.find(({ innerText }) => innerText.includes('MiB'));
          memory.firstElementChild.textContent = '889.2 KiB';
          return all.filter((one) => [...one.children].some(({ offsetTop }) =>
            offsetTop > one.offsetTop + one.firstElementChild.offsetHeight / 2))
            .map((one) => one.innerText);
        });
        assert.deepEqual(broken, [], `${scheme} ${width}: a value stays on its line`);
        if (process.env.SHOTS) {
          const path = `${process.env.SHOTS}/${scheme}-${width}.png`;
          await tab.page.screenshot({ path, fullPage: true });
        }
        assert.deepEqual(await tab.overflows(), [], `${scheme} ${width}: with all details open`);
      });
    }
  }
});

/** Relative luminance: <https://www.w3.org/TR/WCAG22/#dfn-relative-luminance>. */
const CONTRAST = () => {
  const luminance = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const over = (top, bottom) => {
    const alpha = top[3] ?? 1;
    return [0, 1, 2].map((at) => top[at] * alpha + bottom[at] * (1 - alpha));
  };
  const ground = (node) => {
    if (!node) return [255, 255, 255];
    const own = parse(getComputedStyle(node).backgroundColor);
    return own[3] === 0 ? ground(node.parentElement) : over(own, ground(node.parentElement));
  };
  const texts = [...document.querySelectorAll('body *')].filter((node) => node.offsetParent
    && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim() !== ''));
  return texts.flatMap((node) => {
    const back = ground(node);
    const [a, b] = [over(parse(getComputedStyle(node).color), back), back].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const what = `${node.tagName}.${node.className} "${node.innerText}"`;
    return ratio < 4.5 ? [`${what} ${ratio.toFixed(2)}`] : [];
  });
};

test('text has contrast, controls have names, keyboard focus reaches everything', async () => {
  for (const scheme of ['light', 'dark']) {
    const media = [{ name: 'prefers-color-scheme', value: scheme }];
    await watching({ media }, async (tab) => {
      await tab.until('the pins', '#pins-panel', (text) => text.includes('proven'));
      assert.deepEqual(await tab.page.evaluate(CONTRAST), [], `${scheme}: contrast of 4.5 to 1`);
      const tree = await tab.page.accessibility.snapshot({ interestingOnly: true });
      const flat = (one) => [one, ...(one.children ?? []).flatMap(flat)];
      const controls = ['button', 'textbox', 'searchbox', 'combobox', 'link', 'image', 'img'];
      const nameless = flat(tree).filter(({ role, name }) => controls.includes(role) && !name);
      assert.deepEqual(nameless, [], 'each control and plot has a name');
      await tab.page.focus('body');
      await tab.page.keyboard.press('Tab');
      const first = await tab.page.evaluate(() => document.activeElement.textContent);
      assert.equal(first, 'Skip to content', 'the first stop skips the head');
      const reached = new Set();
      const empty = await tab.page.$$eval('th', (all) => all.filter((one) => !one.textContent).length);
      assert.equal(empty, 0, 'each column has a title');
      for (let stop = 0; stop < 40; stop += 1) {
        await tab.page.keyboard.press('Tab');
        reached.add(await tab.page.evaluate(() => document.activeElement.name ?? ''));
      }
      for (const name of ['what', 'state', 'operation']) assert.ok(reached.has(name), name);
    });
  }
});

test('with a token the browser prompts its user', async () => {
  const file = `${system.dir}/operator.token`;
  const password = (await readFile(file, 'utf8')).trim();
  await system.restart({ PORTCULLIS__ADMIN__TOKEN_FILE: file });
  const closed = await fetch(`${system.admin}/`);
  assert.equal(closed.status, 401, 'access requires the token');
  await watching({ login: { username: 'operator', password } }, async (tab) => {
    await tab.until('the pins', '#pins-panel', (text) => text.includes('proven'));
    tab.complaints = tab.complaints.filter((one) => !one.includes('401'));
  });
  const metrics = await fetch(`${system.admin}/metrics`, {
    headers: { authorization: `Bearer ${password}` },
  });
  assert.equal(metrics.status, 200, 'a scraper shows it as a bearer');
  system.secrets.push(password);
});
