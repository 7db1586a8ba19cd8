// The operator's page through an outage of the node and a restart of the process: what it says, and
// that its plots keep the past.
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { System, Tab, browse } from './operator_world.mjs';
import { Node, endAll, eventually } from './relay_world.mjs';

let node;
let system;
let browser;
let folder;

before(async () => {
  node = await Node.start();
  folder = await mkdtemp(join(tmpdir(), 'portcullis-fleet-'));
  const secret = join(folder, 'fleet.secret');
  await writeFile(secret, 'fleet-0123456789abcdef0123456789abcdef', { mode: 0o600 });
  system = await System.start(node, { env: {
    PORTCULLIS__FLEET__URL: process.env.PORTCULLIS_TEST_REDIS,
    PORTCULLIS__FLEET__NAME: `page-${process.pid}`,
    PORTCULLIS__FLEET__SECRET_FILE: secret,
  } });
  await system.drip();
  browser = await browse();
});

after(async () => {
  node?.child.process.kill('SIGCONT');
  await browser?.close();
  await endAll(system, node);
  await rm(folder, { recursive: true, force: true });
});

const PLOT = 'article[aria-label="gateway"] [role=slider]';

/** A tab on the page, once it has shown a snapshot. */
async function open(options) {
  const tab = await Tab.open(browser, `${system.admin}/`, options);
  await tab.until('the first snapshot', '#status', (text) => text === 'ok');
  return tab;
}

/** The points of the past that the page shows. */
const points = (tab) => tab.page.$eval(PLOT, (plot) => Number(plot.ariaValueMax) + 1);
/** Where the cursor of the plot is, in words. */
const cursor = (tab) => tab.page.$eval(PLOT, (plot) => plot.ariaValueText);
const state = (tab, card) => tab.text(`article[aria-label="${card}"] header .pill`);
const shoot = async (tab, name) => {
  if (!process.env.SHOTS) return;
  await tab.page.screenshot({ path: `${process.env.SHOTS}/${name}.png`, fullPage: true });
};

test('a page that opens shows the past', async () => {
  const requests = async () => {
    const { series, points: all } = await (await fetch(`${system.admin}/history`)).json();
    const at = series.indexOf('gateway.requests');
    return all.length > 2 && all.some(({ values }) => values[at] > 0);
  };
  await eventually('points of requests, without a page', async () => {
    await system.read('starknet_blockNumber');
    return requests();
  });
  const tab = await open();
  const opened = await tab.page.evaluate(() => performance.timeOrigin);
  await eventually('the points', async () => await points(tab) > 2);
  const line = await tab.page.$eval(`${PLOT} path.main`, (path) => path.getAttribute('d'));
  assert.ok(line.includes('L'), 'they are drawn');
  await tab.page.focus(PLOT);
  await tab.page.keyboard.press('Home');
  const first = /^(\S+ )?(\d\d:\d\d:\d\d) UTC: requests [\d.,]+\/s, refused 0\/s, failed 0\/s$/;
  const [, date = `${new Date(opened).toISOString().slice(0, 10)} `, time] =
    (await cursor(tab)).match(first);
  assert.ok(Date.parse(`${date.trim()}T${time}Z`) < opened, `${date}${time} was before the page`);
  await tab.close();
});

test('the values of a time are shown by keyboard, mouse and touch', async () => {
  const tab = await open();
  await eventually('points', async () => await points(tab) > 2);
  const tip = `${PLOT} .tip`;
  await tab.page.focus(PLOT);
  const newest = await cursor(tab);
  await tab.page.keyboard.press('ArrowLeft');
  assert.notEqual(await cursor(tab), newest, 'the arrow moves it');
  assert.match(await tab.text(tip), /\d\d:\d\d:\d\d UTC\s+requests [\d.,]+\/s/);
  const marks = await tab.page.$$eval('.plot .mark', (all) => all.filter((one) =>
    one.getAttribute('d')).length);
  assert.ok(marks > 5, 'the time is marked in every plot');
  await tab.page.keyboard.press('Escape');
  assert.equal(await tab.page.$eval(tip, (one) => one.hidden), true);
  await tab.page.$eval(PLOT, (plot) => plot.blur());
  await tab.page.hover(PLOT);
  assert.match(await tab.text(tip), /requests/, 'the mouse');
  await tab.page.mouse.move(0, 0);
  assert.equal(await tab.page.$eval(tip, (one) => one.hidden), true);
  const plot = await tab.page.$(PLOT);
  await plot.tap();
  assert.match(await tab.text(tip), /requests/, 'a finger');
  await tab.close();
});

test('an outage is on the card of each surface that it breaks', async (t) => {
  t.after(() => node.child.process.kill('SIGCONT'));
  const tab = await open();
  const host = hostname();
  assert.equal(await tab.page.title(), `${host} – Portcullis ${new URL(system.admin).host}`);
  assert.equal(await tab.text('#host'), host);
  for (const card of ['gateway', 'relay', 'sidecar']) assert.equal(await state(tab, card), 'ok');
  assert.equal(await state(tab, 'Node'), 'healthy');
  assert.equal(await state(tab, 'Fleet'), 'shared limits');
  await tab.until('the numbers of the fleet', 'article[aria-label="Fleet"] .stats',
    (text) => /^Instances\s+1\s+Messages\s+\S+\/s\s/.test(text));
  node.child.process.kill('SIGSTOP');
  await eventually('the gateway fails', async () => {
    // nobody waits for the answers
    system.read('starknet_blockNumber').catch(() => null);
    return await state(tab, 'gateway') === 'failing';
  });
  const why = await tab.text('article[aria-label="gateway"] .why');
  assert.ok(why.includes('node URL failed') && why.includes(node.url), why);
  // the chain watch may miss its answers before a breaker opens
  assert.match(await state(tab, 'Node'), /^(breaker open \(\d\)|failing)$/);
  await eventually('the relay', async () => await state(tab, 'relay') === 'failing');
  await eventually('the cache', async () => await state(tab, 'Cache') === 'bypassed');
  assert.equal(await state(tab, 'sidecar'), 'ok', 'it needs no node');
  assert.match(await tab.page.title(), new RegExp(`^failing – ${host} – `));
  const pins = await tab.until('pins that fail', '#pins-panel',
    (text) => text.includes('the node is silent'));
  assert.match(pins, /last proven at (\S+ )?\d\d:\d\d:\d\d UTC/);
  assert.ok(!pins.includes('unreadable'), 'not a row for each pin');
  await eventually('one banner', async () => {
    const banners = await tab.page.$$eval('#troubles li', (all) => all.map((one) => one.innerText));
    return banners.length === 1 && banners[0].startsWith('node URL failed')
      && banners[0].includes('also:') && banners[0].includes('cache bypassed')
      && banners[0].includes('pins lost');
  });
  await eventually('no latency of failures', async () => {
    system.read('starknet_blockNumber').catch(() => null);
    return await tab.value('Node', 'p50') === '–' && await tab.value('gateway', 'p99') === '–';
  });
  await eventually('the age of the newest block', async () =>
    /^block [\d,]+, new (\d+ min )?\d+ s ago$/.test(await tab.text('article[aria-label="Node"] .where')));
  const links = await tab.page.$$eval('#troubles a, .why a', (all) => all.map(({ href }) => href));
  assert.ok(links.length > 1 && links.every((link) =>
    link === `${system.admin}/runbook#portcullisnodedown`
    || link === `${system.admin}/runbook#portcullisrelaypinsunproven`
    || link === `${system.admin}/runbook#portculliscachesuspended`), String(links));
  for (const scheme of ['light', 'dark']) {
    await tab.page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    for (const width of [360, 1280, 1920]) {
      await tab.page.setViewport({ width, height: 900 });
      assert.deepEqual(await tab.overflows(), [], `${scheme} ${width}`);
      await shoot(tab, `outage-${scheme}-${width}`);
    }
  }
  node.child.process.kill('SIGCONT');
  await eventually('all is well', async () => await state(tab, 'relay') === 'ok');
  await tab.until('the verdict', '#status', (text) => text === 'ok');
  await tab.close();
});

test('the past goes on after a restart, with a gap', async () => {
  const tab = await open();
  await eventually('points', async () => await points(tab) > 2);
  const before = await points(tab);
  await system.stop();
  await tab.until('when it was seen', '#status', (text) => /, last update \d\d:/.test(text));
  const isGrey = (part) => tab.page.$eval(part, (one) => getComputedStyle(one).filter !== 'none');
  for (const part of ['main', '.facts', '.troubles']) assert.ok(await isGrey(part), part);
  await shoot(tab, 'ended-1280');
  const end = Date.now();
  // longer than two intervals, after which a line would claim to know
  await eventually('a gap', () => Date.now() - end > 11_000);
  await system.serve();
  await tab.until('it is back', '#status', (text) => text === 'ok');
  await eventually('points of the new process', async () => await points(tab) >= before + 2);
  const line = await tab.page.$eval(`${PLOT} path.main`, (path) => path.getAttribute('d'));
  assert.ok(line.split('M').length > 2, `the line is broken: ${line}`);
  assert.ok(!await isGrey('main'));
  await tab.close();
});

test('the documents lead back, and their links are underlined', async () => {
  const tab = await Tab.open(browser, `${system.admin}/docs`);
  const { host } = new URL(system.gateway);
  assert.ok((await tab.text('main')).includes(`Listens on ${host}.`), 'where it listens really');
  const plain = await tab.page.$$eval('main a', (links) => links.filter((link) =>
    !getComputedStyle(link).textDecorationLine.includes('underline')).length);
  assert.equal(plain, 0, 'links in text');
  const colour = () => tab.page.$eval('body', (body) => getComputedStyle(body).backgroundColor);
  const paper = await colour();
  await shoot(tab, 'docs-1280');
  await tab.page.click('nav .back a');
  await tab.until('the page', '#status', (text) => text === 'ok');
  assert.equal(await colour(), paper, 'both have one design');
  await tab.close();
});

test('each banner leads to its section of the runbook', async () => {
  const tab = await Tab.open(browser, `${system.admin}/runbook#portcullisnodedown`);
  const top = await tab.page.$eval('#portcullisnodedown', (one) => one.getBoundingClientRect().top);
  assert.ok(top >= 0 && top < 900, `the section is in view: ${top}`);
  const broken = await tab.page.$$eval('main a[href]', (links) => links.map((link) =>
    link.getAttribute('href')).filter((to) => to.startsWith('#') && !document.querySelector(to)));
  assert.deepEqual(broken, [], 'each of its links leads somewhere');
  const unknown = await tab.page.$$eval('main a[href]', (links) => links.map((link) =>
    link.getAttribute('href')).filter((to) => !to.startsWith('#') && !to.startsWith('https://')));
  assert.deepEqual(unknown, []);
  for (const width of [360, 1280, 1920]) {
    await tab.page.setViewport({ width, height: 900 });
    assert.deepEqual(await tab.overflows(), [], `${width}`);
    await shoot(tab, `runbook-${width}`);
  }
  assert.deepEqual(tab.complaints, []);
  await tab.close();
});
