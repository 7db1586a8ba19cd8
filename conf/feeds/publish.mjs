// Publishes the feeds of a running sidecar: writes a record of each into the repository of an account,
// or deletes these records. README.md next to this file explains each step.
//
// npm install @atproto/api@0.19, then node publish.mjs publish|unpublish with ORIGIN, IDENTIFIER and
// PASSWORD_FILE in the environment; SERVICE, if the account is not at bsky.social.
import { readFile, stat } from 'node:fs/promises';
import { AppBskyFeedGenerator, AtpAgent, AtUri } from '@atproto/api';

/** Yours: the names and descriptions that readers see. At most 24 and 300 characters. */
const TEXTS = {
  'trade-listings': ['Trade listings', 'Cards that collectors offer and look for.'],
  'collection-posts': ['Collections', 'Posts about collections of cards.'],
  'fresh-pulls': ['Fresh pulls', 'Cards just pulled from packs.'],
  showcase: ['Showcase', 'Cards that collectors are proud of.'],
  journals: ['Journals', 'Journals of collectors.'],
  'card-reviews': ['Card reviews', 'Reviews of cards and sets.'],
  'whoto-follow': ['Who to follow', 'Collectors whom you may want to follow.'],
};
const COLLECTION = 'app.bsky.feed.generator';

/** A setting from the environment. */
function setting(name, preset) {
  const value = process.env[name] ?? preset;
  if (!value) throw new Error(`set ${name} in the environment`);
  return value;
}

/** The app password. Only its owner may read the file. */
async function password() {
  const file = setting('PASSWORD_FILE');
  if ((await stat(file)).mode & 0o077) throw new Error(`${file} is open to others: chmod 600`);
  return (await readFile(file, 'utf8')).trim();
}

/** The sidecar's DID, and the name of each of its feeds, which must belong to the account. */
async function described(account) {
  const sidecar = new AtpAgent({ service: setting('ORIGIN') });
  const { data } = await sidecar.app.bsky.feed.describeFeedGenerator();
  const feeds = data.feeds.map((feed) => new AtUri(feed.uri));
  const other = feeds.find((feed) => feed.host !== account);
  if (other) {
    throw new Error(`the sidecar's feeds belong to ${other.host}: set sidecar.feeds.publisher_did `
      + `= "${account}", and reload it`);
  }
  return { did: data.did, names: feeds.map((feed) => feed.rkey) };
}

/** The stored record of a feed, if there is one. */
async function stored(agent, place) {
  try {
    return (await agent.com.atproto.repo.getRecord(place)).data.value;
  } catch (error) {
    if (error.error === 'RecordNotFound') return undefined;
    throw error;
  }
}

/** Writes the record. What it has already, such as an avatar, stays. */
async function publish(agent, place, old, did) {
  const [displayName, description] = TEXTS[place.rkey] ?? [place.rkey, ''];
  const createdAt = new Date().toISOString();
  const record = { createdAt, ...old, $type: COLLECTION, did, displayName, description };
  const { success, error } = AppBskyFeedGenerator.validateRecord(record);
  if (!success) throw error;
  const { data } = await agent.com.atproto.repo.putRecord({ ...place, record });
  console.log(`published ${data.uri}`);
}

/** Deletes the record. One that names another feed generator is not ours. */
async function unpublish(agent, place, old, did) {
  if (old?.did !== did) return console.log(`not published ${place.rkey}`);
  await agent.com.atproto.repo.deleteRecord(place);
  return console.log(`unpublished ${place.rkey}`);
}

async function main(command) {
  const run = { publish, unpublish }[command];
  if (!run) throw new Error('usage: node publish.mjs publish|unpublish');
  const agent = new AtpAgent({ service: setting('SERVICE', 'https://bsky.social') });
  await agent.login({ identifier: setting('IDENTIFIER'), password: await password() });
  try {
    const { did, names } = await described(agent.assertDid);
    for (const rkey of names) {
      const place = { repo: agent.assertDid, collection: COLLECTION, rkey };
      await run(agent, place, await stored(agent, place), did);
    }
  } finally {
    await agent.logout();
  }
}

await main(process.argv[2]).catch((error) => {
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
});
