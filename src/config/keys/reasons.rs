//! Why each key is what it is when the file does not say, or why it must be said: one line for
//! each, by section. `conf/portcullis.toml` shows it under the meaning of the key.

/// The reason of the key with this path. A test sees to it that each has one.
pub(super) fn reason(path: &str) -> Option<&'static str> {
    let (section, name) = path.rsplit_once('.')?;
    let (_, reasons) = REASONS.iter().find(|(of, _)| *of == section)?;
    reasons.iter().find(|(key, _)| *key == name).map(|(_, reason)| *reason)
}

/// Sections, each with its keys and their reasons.
pub(in crate::config) const REASONS: &[(&str, &[(&str, &str)])] = &[
    ("server", SERVER),
    ("log", LOG),
    ("node", NODE),
    ("gateway", GATEWAY),
    ("gateway.cache", GATEWAY_CACHE),
    ("gateway.connections", GATEWAY_CONNECTIONS),
    ("gateway.tls", TLS),
    ("relay", RELAY),
    ("relay.tls", TLS),
    ("relay.policy", RELAY_POLICY),
    ("relay.pins", RELAY_PINS),
    ("relay.keys", RELAY_KEYS),
    ("sidecar", SIDECAR),
    ("sidecar.tls", TLS),
    ("sidecar.feeds", SIDECAR_FEEDS),
    ("sidecar.session", SIDECAR_SESSION),
    ("sidecar.age", SIDECAR_AGE),
    ("sidecar.robots", SIDECAR_ROBOTS),
    ("sidecar.health", SIDECAR_HEALTH),
    ("store", STORE),
    ("admin", ADMIN),
    ("admin.tls", TLS),
];

const A_PROXY_HERE: &str = "a proxy on this machine; any other peer could name whom it likes.";
const AN_UPGRADE: &str = "an upgraded contract is another one: somebody looks at it first.";
const NOT_NAMED: &str = "nothing is asked that was not named.";
const A_LEGAL_TEXT: &str = "the product has it or not; clients show it where it is given.";

const SERVER: &[(&str, &str)] = &[
    ("threads", "the work spreads over all cores; fewer leave some to what else runs here."),
    ("drain_delay", "one machine has no balancer to notice; behind one, longer than its probes."),
    ("grace_period", "the node may take 8s and a receipt 10s, and the answer has to leave."),
    ("answer_memory", "the cache, and 48 of the largest answers at a time; then 503, not swap."),
];

const LOG: &[(&str, &str)] = &[
    ("level", "it has a line for each request; debug is for finding a fault."),
    ("format", "whoever collects log lines parses them."),
    ("clients", "limits go by address, and so does abuse; truncate where it is personal data."),
];

const NODE: &[(&str, &str)] = &[
    ("url", "there is no node to guess; TLS ends before this network, so there is none here."),
    ("timeout", "the public contract; it can only be tightened."),
    ("connect_timeout", "a node that is up takes milliseconds; the rest is for the next URL."),
    ("idle_timeout", "most servers keep a connection longer: who closes first saves a retry."),
    ("max_idle", "the next burst of reads finds the connections of the last."),
    ("max_connections", "more calls at a time only queue up inside the node."),
];

const GATEWAY: &[(&str, &str)] = &[
    ("listen", "loopback: the public address is usually that of a proxy in front, and TLS, too."),
    ("requests_per_minute", "the public contract: three a second are enough for a wallet's polls."),
    ("max_clients", "so many full windows fit in 32 MiB; a flood of addresses takes no more."),
    ("max_in_flight_per_client", "a page asks a few dozen things at once, not hundreds."),
    ("trusted_proxies", A_PROXY_HERE),
    ("methods", "the public contract has these thirteen; no other can be added."),
    ("cors_origins", "any wallet may read: answers are the same for all, and without credentials."),
    ("single_flight", "with a new block all clients ask the same at the same time."),
];

const GATEWAY_CACHE: &[(&str, &str)] = &[
    ("enabled", "what never changes is large and asked for often: classes above all."),
    ("size", "about a hundred of the largest classes."),
    ("max_entries", "bounds what small answers cost beside their bytes."),
    ("watch_interval", "no answer that was taken back is told much longer; a look is cheap."),
];

const GATEWAY_CONNECTIONS: &[(&str, &str)] = &[
    ("max", "an idle one takes some 10 KiB: 200 MiB for all of them."),
    ("max_per_client", "a browser opens six; an office behind one address opens many more."),
    ("header_size", "browsers send about 1 KiB, and each connection may hold this much."),
    ("header_timeout", "who takes longer is not slow but holds a connection."),
    ("body_timeout", "64 KiB pass in it at 7 KB a second."),
    ("write_timeout", "4 MiB pass in it at 70 KB a second."),
    ("idle_timeout", "a wallet polls every few seconds; who went away makes room."),
    ("lifetime", "now and then a client looks its address up again, and is balanced anew."),
];

const TLS: &[(&str, &str)] = &[
    ("certificate_file", "whoever renews certificates writes files; SIGHUP takes them over."),
    ("key_file", "a file is in no list of processes, and nobody else can read it."),
    ("http2", "one connection for many requests at a time; every limit holds there, too."),
];

const RELAY: &[(&str, &str)] = &[
    ("listen", "loopback: the token travels in the clear as far as here."),
    ("token_files", "a file is in no list of processes; two, so that a rotation refuses nobody."),
    ("requests_per_minute", "a backend writes for all its users, ten times a second."),
    ("max_clients", "the backend's hosts are few; the rest guess tokens."),
    ("max_in_flight_per_client", "a burst waits for its turns and receipts, and is not refused."),
    ("trusted_proxies", A_PROXY_HERE),
    ("pins_max_age", "a proof is dozens of reads; what changes is noticed within this."),
    ("receipt_timeout", "most receipts come within it; a backend rarely waits longer."),
];

const RELAY_POLICY: &[(&str, &str)] = &[
    ("identity_verification_mode", "who expects V1 learns at the start that there is none."),
    ("verification_v2_required", "the flag can not be taken back: the file says that it is meant."),
    ("ecosystem_ready", "the operator says that all is in place; the pins then prove it."),
    ("max_calls", "approve and delegate are two; a wallet needs a few more at most."),
    ("max_calldata", "eight of the allowed calls with all their arguments take less."),
    ("max_l2_gas", "many times what the allowed calls take, and no transaction is endless."),
    ("max_fee", "what a mistaken bound costs a user at most."),
    ("assurance_types", "the one that the product attests."),
    ("assurance_levels", "the three that the product knows."),
    ("usership_first_epoch", "0 is what a forgotten number reads as."),
    ("usership_last_epoch", "a time that was taken for an epoch is far beyond it."),
    ("faucet_amount", "pays for the deployment of an account and its first transactions."),
    ("faucet_cooldown", "test money is for everybody: a drip a day."),
    ("recovery_cancel_window", "a day to notice a recovery that nobody asked for."),
];

const RELAY_PINS: &[(&str, &str)] = &[
    ("chain_id", "keys work on every chain: nothing is signed for another one."),
    ("account_class", "what a signature means is up to the class: only this one is known here."),
    ("owner", "a registry with another owner is in other hands."),
    ("verifier", "who mints must not attest: one stolen key does not do both."),
    ("faucet", "one account less to fund; its own leaves the owner's nonces to operations."),
    ("token", "fees and drips are paid in it."),
    ("token_class", AN_UPGRADE),
    ("registry", "identities, attestations and recoveries are written there and nowhere else."),
    ("registry_class", AN_UPGRADE),
    ("staking", "users approve their tokens for it and delegate there."),
    ("staking_class", AN_UPGRADE),
    ("card", "cards are minted and moved in this contract only."),
    ("card_class", AN_UPGRADE),
    ("usership", "results are counted there and nowhere else."),
    ("usership_class", AN_UPGRADE),
    ("bridge", "what is given to it leaves the chain."),
    ("bridge_class", AN_UPGRADE),
    ("l1_bridge", "an adapter that was wired anew would send elsewhere."),
    ("minimum_balance", "readiness fails while there is still something left to pay fees with."),
];

const RELAY_KEYS: &[(&str, &str)] = &[
    ("owner_file", "a configuration is shown and shared, a key is not."),
    ("verifier_file", "a file of its own: two keys can be handed over separately."),
    ("faucet_file", "the owner pays drips unless another account is named."),
];

const SIDECAR: &[(&str, &str)] = &[
    ("listen", "loopback: the public address, and TLS, are those of a proxy in front."),
    ("base_url", "feeds and sitemaps name themselves by it, whatever a Host header says."),
    ("requests_per_minute", "a few hosts ask for all their users: feeds, podcast apps, crawlers."),
    ("max_clients", "bounds what a flood of addresses takes; who was seen last stays."),
    ("max_in_flight_per_client", "one crawler does not take all connections to the store."),
    ("trusted_proxies", A_PROXY_HERE),
    ("operator_token_file", "whoever is not the operator learns only whether all is well."),
];

const SIDECAR_FEEDS: &[(&str, &str)] = &[
    ("publisher_did", "the service can publish its feeds itself."),
    ("service_did", "did:web needs no registration."),
    ("privacy_policy", A_LEGAL_TEXT),
    ("terms_of_service", A_LEGAL_TEXT),
    ("blocked_labels", "what moderators of the network take down, hide or call harmful."),
];

const SIDECAR_SESSION: &[(&str, &str)] = &[
    ("issuer", "a secret or a key set of one platform tells already."),
    ("audience", "what the platform writes into the session of a signed-in user."),
    ("hs256_secret_files", "no secret is known to everybody; two, so that nobody is signed out."),
    ("jwks_url", "only the operator knows whose keys to believe."),
    ("plc_url", "the network's own directory."),
    ("localhost_dids", "over http, whoever is on the way answers with keys of his own."),
];

const SIDECAR_AGE: &[(&str, &str)] = &[
    ("webhook_secret_files", "without a secret the webhook refuses, rather than believes."),
    ("signature_header", "the contract's name; another verifier may have another."),
    ("age_bands", "those that app stores tell apart."),
    ("verification_url", "the product can lead its users there itself."),
    ("session_lifetime", "a day to find a document, and no reference stays open for ever."),
    ("validity", "once a year is bearable, and bands change with age."),
];

const SIDECAR_ROBOTS: &[(&str, &str)] = &[
    ("indexing", "the public site wants to be found."),
    ("disallow", "pages that have no content of their own."),
    ("blocked_agents", "whom to keep away is the product's decision."),
];

const SIDECAR_HEALTH: &[(&str, &str)] = &[
    ("platform", NOT_NAMED),
    ("card_data", NOT_NAMED),
    ("pds", NOT_NAMED),
    ("email", NOT_NAMED),
    ("web_push", NOT_NAMED),
    ("podcast_syndication", NOT_NAMED),
    ("payments", NOT_NAMED),
];

const STORE: &[(&str, &str)] = &[
    ("url", "a file, and no server to run; two processes on one store need PostgreSQL."),
    ("password_file", "secrets are files alone: a configuration is shown and shared."),
    ("max_connections", "a query takes milliseconds, and PostgreSQL has 100 for everybody."),
];

const ADMIN: &[(&str, &str)] = &[
    ("listen", "it tells how the service is used: that is for this machine."),
    ("token_file", "whoever reaches a local listener may look; farther away, whoever knows more."),
];
