// The calls of a product's backend and of its pages, with openapi-fetch and the types that
// openapi-typescript makes of the documents.
import createClient from 'openapi-fetch';
import type { components as GatewayParts, paths as Gateway } from './gateway.js';
import type { components as RelayParts, paths as Relay } from './relay.js';
import type { components as SidecarParts, paths as Sidecar } from './sidecar.js';

type Bodies = RelayParts['schemas'];
type Verified = Extract<SidecarParts['schemas']['AgeEvent'], { status: 'verified' }>;

interface Addresses { gateway: string; relay: string; sidecar: string; token: string }

export function calls(at: Addresses) {
  const headers = { Authorization: `Bearer ${at.token}` };
  const relay = createClient<Relay>({ baseUrl: at.relay, headers });
  const gateway = createClient<Gateway>({ baseUrl: at.gateway });
  const sidecar = createClient<Sidecar>({ baseUrl: at.sidecar });
  const session = '/functions/age-verification-session';
  const bearer = (token: string) => ({ Authorization: `Bearer ${token}` });
  return {
    drip: (body: Bodies['FaucetDrip']) => relay.POST('/faucet-drip', { body }),
    submit: (body: Bodies['Submission']) => relay.POST('/rpc', { body }),
    register: (body: Bodies['Register']) => relay.POST('/register', { body }),
    attest: (body: Bodies['Attest']) => relay.POST('/verification-attest', { body }),
    mint: (body: Bodies['MintCard'], key: string) =>
      relay.POST('/mint-card', { body, params: { header: { 'Idempotency-Key': key } } }),
    propose: (body: Bodies['RecoveryPropose']) => relay.POST('/recovery-propose', { body }),
    execute: (body: Bodies['Identity']) => relay.POST('/recovery-execute', { body }),
    read: (body: GatewayParts['schemas']['Request']) => gateway.POST('/rpc', { body }),
    feeds: () => sidecar.GET('/functions/describeFeedGenerator'),
    feed: (feed: string) =>
      sidecar.GET('/functions/getFeedSkeleton', { params: { query: { feed } } }),
    openSession: (token: string) => sidecar.POST(session, { headers: bearer(token), body: {} }),
    ageStatus: (token: string) => sidecar.GET(session, { headers: bearer(token) }),
    report: (body: Verified, signature: string) =>
      sidecar.POST('/functions/age-verifier-webhook', {
        body,
        headers: { 'x-service-verifier-signature': signature },
      }),
  };
}
