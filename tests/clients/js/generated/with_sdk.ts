// The calls of a product's backend and of its pages, with the clients that @hey-api/openapi-ts makes
// of the documents.
import { createClient as createGateway } from './sdk/gateway/client/index.js';
import * as gateway from './sdk/gateway/index.js';
import { createClient as createRelay } from './sdk/relay/client/index.js';
import * as relay from './sdk/relay/index.js';
import { createClient as createSidecar } from './sdk/sidecar/client/index.js';
import * as sidecar from './sdk/sidecar/index.js';

interface Addresses { gateway: string; relay: string; sidecar: string; token: string }

export function calls(at: Addresses) {
  const backend = { client: createRelay({ baseUrl: at.relay, auth: at.token }) };
  const reader = { client: createGateway({ baseUrl: at.gateway }) };
  const page = createSidecar({ baseUrl: at.sidecar });
  return {
    drip: (body: relay.FaucetDrip) => relay.faucetDrip({ ...backend, body }),
    submit: (body: relay.Submission) => relay.submit({ ...backend, body }),
    register: (body: relay.Register) => relay.register({ ...backend, body }),
    attest: (body: relay.Attest) => relay.verificationAttest({ ...backend, body }),
    mint: (body: relay.MintCard, key: string) =>
      relay.mintCard({ ...backend, body, headers: { 'Idempotency-Key': key } }),
    propose: (body: relay.RecoveryPropose) => relay.recoveryPropose({ ...backend, body }),
    execute: (body: relay.Identity) => relay.recoveryExecute({ ...backend, body }),
    read: (body: gateway.Request) => gateway.call({ ...reader, body }),
    feeds: () => sidecar.describeFeedGenerator({ client: page }),
    feed: (feed: string) => sidecar.getFeedSkeleton({ client: page, query: { feed } }),
    openSession: (auth: string) => sidecar.openAgeSession({ client: page, auth, body: {} }),
    ageStatus: (auth: string) => sidecar.ageStatus({ client: page, auth }),
    report: (body: sidecar.AgeEvent, auth: string) =>
      sidecar.ageVerifierWebhook({ client: page, auth, body }),
  };
}
