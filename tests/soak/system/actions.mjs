// The act of each fault, which ends when everything is in place again.
import { setTimeout as pause } from 'node:timers/promises';
import { ask } from '../../crash/lib/sidecar.mjs';
import { until } from './server.mjs';

const RELOADED = 'portcullis_config_last_reload_successful';
const MISTAKE = '\n[gateway_]\nrequests_per_minute = 180\n';

/** The value of a metric without labels. */
async function metric(server, name) {
  const { text } = await ask(`${server.admin}/metrics`);
  return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]);
}

const reloads = (server, outcome) =>
  until(`${server.name} has reloaded`, async () => (await metric(server, RELOADED)) === outcome);

const toggled = (text) => {
  const now = /^gzip = true$/m.test(text);
  return text.replace(/^gzip = (true|false)$/m, `gzip = ${!now}`);
};

async function withoutNode({ world }, seconds) {
  await world.proxy.refuse();
  await pause(seconds * 1000);
  await world.proxy.accept();
}

async function fleetStore(system, seconds, [begin, end]) {
  await begin(system);
  await pause(seconds * 1000);
  await end(system);
  const isUp = async (server) => (await metric(server, 'portcullis_fleet_up')) === 1;
  for (const server of system.fleet) {
    await until(`${server.name} uses the fleet's store`, () => isUp(server));
  }
}

/** By fault: the servers that one may be about, and the act. */
export const ACTIONS = {
  'blocks aborted': { act: ({ era }, _, chance) => era.rollBack(chance, until) },
  'node unreachable': { act: withoutNode },
  'node unreachable for a minute': { act: withoutNode },
  'node hangs': {
    async act({ node }, seconds) {
      node.pause();
      await pause(seconds * 1000);
      node.resume();
    },
  },
  'node killed, another chain': {
    before: (system) => system.closeEra(),
    act: (system, seconds) => system.replaceChain(seconds),
    after: (system) => system.beginEra(),
  },
  reload: {
    targets: ({ servers }) => servers,
    async act(_, seconds, chance, server) {
      server.reload(toggled);
      await reloads(server, 1);
    },
  },
  'reload of a mistake': {
    targets: ({ servers }) => servers,
    async act(_, seconds, chance, server) {
      server.reload((text) => text + MISTAKE);
      await reloads(server, 0);
      await pause(seconds * 1000);
      server.reload((text) => text.replace(MISTAKE, ''));
      await reloads(server, 1);
    },
  },
  // the second of the two more often: the first shows how a process ages
  upgrade: {
    targets: ({ fleet: [one, two] }) => [one, two, two, two],
    act: (system, seconds, chance, server) => server.upgrade(),
  },
  'instance killed': {
    targets: ({ fleet }) => fleet.slice(1),
    async act(system, seconds, chance, server) {
      await server.end('SIGKILL');
      await pause(seconds * 1000);
      await server.start();
    },
  },
  'PostgreSQL crashes': { act: ({ cluster }) => cluster.restart() },
  'PostgreSQL fails over': {
    async act({ cluster }, seconds) {
      await cluster.crash();
      await pause(seconds * 1000);
      await cluster.rejoin();
    },
  },
  'fleet store killed': {
    act: (system, seconds) =>
      fleetStore(system, seconds, [({ redis }) => redis.kill(), (all) => all.startRedis()]),
  },
  'fleet store hangs': {
    act: (system, seconds) =>
      fleetStore(system, seconds, [({ redis }) => redis.pause(), ({ redis }) => redis.resume()]),
  },
  'disk full': {
    async act({ disk }, seconds) {
      await until('the log of the store is short', () => disk.shorten());
      disk.fill();
      await pause(seconds * 1000);
      disk.free();
    },
  },
};
