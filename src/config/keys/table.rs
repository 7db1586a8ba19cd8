//! The table of all sections and keys, in the order of the example file.

use super::{Key, Section, key, required, section};

pub(in crate::config) const SECTIONS: &[Section] = &[
    section("server", "The process."),
    section("log", "The log on standard error: one line per request."),
    section("node", "The private Starknet node."),
    section(
        "gateway",
        "The public read gateway: POST /rpc. Leave the section out to switch it off.",
    ),
    section("gateway.connections", "Bounds on each client connection of the gateway."),
    section(
        "relay",
        "The protected write path, for the token's holders. Leave it out to switch it off.",
    ),
    section(
        "relay.policy",
        "What may be written. The first three say that only permanent V2 verification is served.",
    ),
    section(
        "relay.pins",
        "What the chain must hold before anything is written: checked on every proof.",
    ),
    section(
        "relay.keys",
        "Files with the private keys of the accounts that sign (0x-hex, mode 0600 or stricter). \
         Relative paths are looked for in $CREDENTIALS_DIRECTORY first.",
    ),
    section("store", "Where the relay keeps its journal. Not used when [relay] is left out."),
    section("admin", "Metrics and probes for operators. Leave the section out to switch it off."),
];

/// The keys that a running process takes over on SIGHUP.
pub(super) const LIVE: [&str; 10] = [
    "log.level",
    "gateway.requests_per_minute",
    "gateway.max_in_flight_per_client",
    "gateway.trusted_proxies",
    "gateway.methods",
    "gateway.cors_origins",
    "relay.token_files",
    "relay.requests_per_minute",
    "relay.max_in_flight_per_client",
    "relay.trusted_proxies",
];

pub(in crate::config) const KEYS: &[Key] = &[
    key(
        "server.threads",
        "0",
        "Worker threads of the gateway, at most 1024; 0 means one per core.",
    ),
    key(
        "server.drain_delay",
        r#""0s""#,
        "After SIGTERM: /readyz fails and requests are still served for this long, at most 1h.",
    ),
    key(
        "server.grace_period",
        r#""15s""#,
        "Then new requests get 503 and those in flight have this long to finish, at most 1h.",
    ),
    key(
        "server.answer_memory",
        r#""256 MiB""#,
        "Memory for node answers in flight, over all clients; 4 MiB (one answer) to 1024 GiB.",
    ),
    key(
        "log.level",
        r#""info""#,
        "The least severe level that is written: error, warn, info, debug.",
    ),
    key("log.format", r#""json""#, "json for machines, text for people."),
    key(
        "log.clients",
        r#""full""#,
        "Client addresses in the log: full, or truncated to the network (IPv4 /24, IPv6 /48).",
    ),
    required(
        "node.url",
        r#""http://127.0.0.1:5050/rpc""#,
        "Required. One URL, or a list of up to 8 in order of preference. http:// only.",
    ),
    key(
        "node.timeout",
        r#""8s""#,
        "For one answer in all, from the first connect to the last byte; 100ms to 8s.",
    ),
    key("node.connect_timeout", r#""2s""#, "For one connect, within node.timeout; 100ms to 8s."),
    key(
        "node.idle_timeout",
        r#""30s""#,
        "A pooled connection that was idle this long is not used again.",
    ),
    key("node.max_idle", "256", "Pooled idle connections kept per URL; 1 to 65535."),
    key("node.max_connections", "1024", "Connections to one URL at a time; 1 to 65535."),
    key(
        "gateway.listen",
        r#""127.0.0.1:8080""#,
        "address:port, or unix:/absolute/path. Port 0 takes a free one and logs it.",
    ),
    key(
        "gateway.requests_per_minute",
        "180",
        "Requests that one client (IPv4 address or IPv6 /64) may send in any 60 seconds.",
    ),
    key(
        "gateway.max_clients",
        "100000",
        "Clients that the limiter remembers; the least recently seen is forgotten when full.",
    ),
    key("gateway.max_in_flight_per_client", "64", "Requests of one client at a time."),
    key(
        "gateway.trusted_proxies",
        r#"["127.0.0.0/8", "::1/128"]"#,
        "Peers whose X-Forwarded-For is believed: networks, or single addresses. [] is none.",
    ),
    key(
        "gateway.methods",
        r#"[
    "starknet_specVersion",
    "starknet_chainId",
    "starknet_blockNumber",
    "starknet_getBlockWithTxHashes",
    "starknet_getTransactionByHash",
    "starknet_getTransactionReceipt",
    "starknet_getTransactionStatus",
    "starknet_getClassHashAt",
    "starknet_getClass",
    "starknet_getClassAt",
    "starknet_getNonce",
    "starknet_call",
    "starknet_estimateFee",
]"#,
        "The methods that are answered. The list can only be narrowed.",
    ),
    key(
        "gateway.cors_origins",
        r#"["*"]"#,
        "Web pages that may read answers: \"*\" for all, or origins (\"https://app.example\").",
    ),
    key("gateway.connections.max", "20000", "Connections at a time, over all clients."),
    key(
        "gateway.connections.max_per_client",
        "256",
        "Connections of one client at a time; trusted proxies are exempt.",
    ),
    key(
        "gateway.connections.header_size",
        r#""16 KiB""#,
        "Size of a request head; 1 KiB to 256 KiB.",
    ),
    key("gateway.connections.header_timeout", r#""10s""#, "To receive a whole request head."),
    key("gateway.connections.body_timeout", r#""10s""#, "To receive a whole request body."),
    key("gateway.connections.write_timeout", r#""60s""#, "For a client to take a whole answer."),
    key("gateway.connections.idle_timeout", r#""60s""#, "Between two requests of a connection."),
    key(
        "gateway.connections.lifetime",
        r#""1h""#,
        "A connection is closed after the request that it serves at this age; at most 24h.",
    ),
    key("relay.listen", r#""127.0.0.1:8081""#, "address:port, or unix:/absolute/path."),
    required(
        "relay.token_files",
        r#"["relay.token"]"#,
        "Required. The bearer token's file, or two while it is rotated; 32 characters or more.",
    ),
    key(
        "relay.requests_per_minute",
        "600",
        "Requests that one client with the token may send in any 60 seconds.",
    ),
    key("relay.max_clients", "10000", "Clients that the limiter remembers."),
    key("relay.max_in_flight_per_client", "256", "Requests of one client at a time."),
    key(
        "relay.trusted_proxies",
        r#"["127.0.0.0/8", "::1/128"]"#,
        "Peers whose X-Forwarded-For is believed: networks, or single addresses. [] is none.",
    ),
    key("relay.pins_max_age", r#""5s""#, "How long one proof of all pins serves; 100ms to 1m."),
    key(
        "relay.receipt_timeout",
        r#""10s""#,
        "How long an answer waits for the receipt before it says pending; 1s to 1m.",
    ),
    required(
        "relay.policy.identity_verification_mode",
        r#""v2""#,
        "Required, and the only value: there is no V1 path.",
    ),
    required("relay.policy.verification_v2_required", "true", "Required, and the only value."),
    required("relay.policy.ecosystem_ready", "true", "Required, and the only value."),
    key("relay.policy.max_calls", "8", "Calls in one user-signed transaction; 1 to 32."),
    key("relay.policy.max_calldata", "256", "Felts in its calldata; 16 to 2048."),
    key("relay.policy.max_l2_gas", "500000000", "L2 gas that one transaction may ask for."),
    key(
        "relay.policy.max_fee",
        r#""10 STRK""#,
        "What one transaction may cost at most, by its resource bounds.",
    ),
    key(
        "relay.policy.assurance_types",
        r#"["age_over_18"]"#,
        "Assurances that may be attested: 1 to 31 printable ASCII characters each.",
    ),
    key("relay.policy.assurance_levels", "[1, 2, 3]", "Levels that may be attested; 1 to 255."),
    key(
        "relay.policy.usership_first_epoch",
        "1",
        "The first epoch whose usership results are taken.",
    ),
    key("relay.policy.usership_last_epoch", "1000000", "The last one."),
    key("relay.policy.faucet_amount", r#""10 STRK""#, "What one faucet drip pays."),
    key(
        "relay.policy.faucet_cooldown",
        r#""24h""#,
        "Between two drips to one recipient; 1s to 30 days.",
    ),
    key(
        "relay.policy.recovery_cancel_window",
        r#""24h""#,
        "A recovery can be cancelled this long after it was proposed; 1s to 30 days.",
    ),
    required("relay.pins.chain_id", r#""PORTCULLIS_DEV""#, "Required. The chain id, as text."),
    required(
        "relay.pins.account_class",
        r#""0x5b4b537eaa2399e3aa99c4e2e0208ebd6c71bc1467938cd52c798c601e43564""#,
        "Required. The class of every account that may send: the users' and our own.",
    ),
    required(
        "relay.pins.owner",
        r#""0x100""#,
        "Required. The account that owns the registry, mints cards and handles recoveries.",
    ),
    required(
        "relay.pins.verifier",
        r#""0x101""#,
        "Required. The account that attests; another one than the owner.",
    ),
    key(
        "relay.pins.faucet",
        r#""""#,
        r#"The account that pays the faucet's drips; "" is the owner."#,
    ),
    required(
        "relay.pins.token",
        r#""0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d""#,
        "Required. The native token's contract.",
    ),
    required(
        "relay.pins.token_class",
        r#""0x2e77ee61d4df3d988ee1f42ea5442e913862cc82c2584d212ecda76666498fc""#,
        "Required. Its class.",
    ),
    required("relay.pins.registry", r#""0x200""#, "Required. The identity registry."),
    required("relay.pins.registry_class", r#""0x300""#, "Required. Its class."),
    required("relay.pins.staking", r#""0x201""#, "Required. The staking pool."),
    required("relay.pins.staking_class", r#""0x301""#, "Required. Its class."),
    required("relay.pins.card", r#""0x202""#, "Required. The card NFT contract."),
    required("relay.pins.card_class", r#""0x302""#, "Required. Its class."),
    required("relay.pins.usership", r#""0x203""#, "Required. The usership contract."),
    required("relay.pins.usership_class", r#""0x303""#, "Required. Its class."),
    required("relay.pins.bridge", r#""0x204""#, "Required. The bridge adapter."),
    required("relay.pins.bridge_class", r#""0x304""#, "Required. Its class."),
    required(
        "relay.pins.l1_bridge",
        r#""0x1111111111111111111111111111111111111111""#,
        "Required. The L1 contract that the bridge adapter sends to.",
    ),
    key(
        "relay.pins.minimum_balance",
        r#""1 STRK""#,
        "What each signing account must hold at least.",
    ),
    required("relay.keys.owner_file", r#""owner.key""#, "Required. The owner's key."),
    required("relay.keys.verifier_file", r#""verifier.key""#, "Required. The verifier's key."),
    key("relay.keys.faucet_file", r#""""#, r#"The faucet's key; "" when relay.pins.faucet is ""."#),
    key(
        "store.url",
        r#""sqlite:portcullis.db""#,
        "sqlite:FILE, or postgres://USER@HOST:PORT/DATABASE: no password in it, no TLS to it.",
    ),
    key("store.password_file", r#""""#, r#"A file with PostgreSQL's password; "" for none."#),
    key("store.max_connections", "8", "Connections to PostgreSQL; 2 to 100."),
    key("admin.listen", r#""127.0.0.1:8083""#, "Loopback address:port or unix:/path only."),
];
