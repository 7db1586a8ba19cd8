//! `[gateway]`: the public read gateway, its cache and the bounds on its connections.

use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;
use portcullis_filters::rpc::Method;

use super::address::{CorsOrigins, Listen, NonEmpty};
use super::clients::{NetworkLimits, network_limits};
use super::key::Section;
use super::section::{keys, section};
use super::surface::{
    ClientsConfig, ClientsLive, LISTEN_FORM, TlsConfig, clients, live_clients, networks, tls,
};
use super::units::Size;
use super::values::{duration, flag, integer, list, method, non_empty, size, text, then};
use super::{DAY, HOUR, MINUTE, SHORTEST, WHY_MEMORY, WHY_TIMEOUTS};

const TIMEOUTS: RangeInclusive<Duration> = SHORTEST..=HOUR;
const CACHE_SIZES: RangeInclusive<Size> = Size::from_mib(1)..=Size::from_mib(1 << 20);
const HEADER_SIZES: RangeInclusive<Size> = Size::from_kib(1)..=Size::from_kib(256);

const WHY_METHODS: &str = "leave [gateway] out to switch it off";
const WHY_CACHE: &str = "less holds no class, and no machine has more to spare";
const WHY_INTERVAL: &str = "shorter only loads the node, longer serves reverted blocks for longer";
const WHY_SOCKETS: &str = "zero refuses all clients, and each connection takes a file descriptor";
const WHY_HEADER: &str = "browsers send about 1 KiB, and every connection may buffer this much";
const ORIGIN_FORM: &str = "\"*\" or an origin such as \"https://app.example\"";

section! {
    /// The public read gateway: POST /rpc. Leave the section out to switch it off.
    "gateway" GatewayConfig {
        /// address:port, or unix:/absolute/path. Port 0 picks a free port and logs it.
        /// Why: loopback: usually a proxy in front has the public address and terminates TLS.
        listen: Listen = Default("127.0.0.1:8080"), text(LISTEN_FORM, Listen::parse);
    }
    with reader {
        /// The bounds of its clients.
        clients: ClientsConfig = clients(reader, "gateway");
        /// The cache of answers.
        cache: CacheConfig = CacheConfig::read(reader);
        /// Bounds on each client connection.
        connections: ConnectionsConfig = ConnectionsConfig::read(reader);
        /// All that a reload changes.
        live: GatewayLive = GatewayLive::read(&mut reader.live());
    }
}

section! {
    /// The part of `[gateway]` that a reload changes.
    more live "gateway" GatewayLive {
        /// The methods that are served; the list can only be narrowed.
        /// Why: the public contract names these thirteen; no other can be added.
        methods: NonEmpty<Method> = Default([
            "starknet_specVersion", "starknet_chainId", "starknet_blockNumber",
            "starknet_getBlockWithTxHashes", "starknet_getTransactionByHash",
            "starknet_getTransactionReceipt", "starknet_getTransactionStatus",
            "starknet_getClassHashAt", "starknet_getClass", "starknet_getClassAt",
            "starknet_getNonce", "starknet_call", "starknet_estimateFee"
        ]), non_empty(list(method, 1..=usize::MAX, WHY_METHODS));
        /// Web pages that may read answers: "*" for all, or origins (`https://app.example`).
        /// Why: any wallet may read; answers are the same for all and need no credentials.
        cors_origins: CorsOrigins = Default(["*"]), then(
            list(text(ORIGIN_FORM, CorsOrigins::parse_item), 0..=usize::MAX, ""),
            CorsOrigins::new,
        );
        /// Concurrent identical requests share one call to the node.
        /// Why: with each new block, all clients send the same requests at once.
        single_flight: bool = Default(true), flag;
        /// Serve the documents of the gateway at GET /docs, for developers of wallets.
        /// Why: off, since the admin listener serves them to you; each request counts as a call.
        docs: bool = Default(false), flag;
        /// Compress answers of 1 KiB and more for clients that accept gzip.
        /// Why: a class shrinks to a third; a cached answer is compressed once.
        gzip: bool = Default(true), flag;
        /// Clients that the rate limit does not count: networks or single addresses; [] for none.
        /// Why: for the operator's own monitors; every other limit applies to them.
        exempt: Vec<IpNet> = Default([]), networks();
        /// Clients that get 403 "blocked" for every request: networks or single addresses.
        /// Why: X-Forwarded-For is known here, where a firewall sees the proxy's address only.
        blocked: Vec<IpNet> = Default([]), networks();
    }
    with reader {
        /// The limits of each client.
        clients: ClientsLive = live_clients(reader, "gateway");
        /// The limits of each client in some networks.
        networks: Vec<NetworkLimits> = reader.take("gateway.clients", network_limits);
        /// TLS, unless its section is left out.
        tls: Option<TlsConfig> = tls(reader, "gateway");
        /// The part of the cache.
        cache: CacheLive = CacheLive::read(reader);
    }
}

pub(super) const CLIENTS: Section = Section {
    path: "gateway",
    about: &[],
    keys: keys! { "gateway":
        /// Clients that the rate limiter tracks; when full, it forgets the least recently seen.
        /// Why: bounds the limiter's memory, even under a flood of addresses.
        max_clients = Default(100000);
        /// Every connection begins with a PROXY header (version 2) from one of trusted_proxies.
        /// Why: only for TCP balancers; a connection without the header is closed.
        proxy_protocol = Default(false);
    },
};

pub(super) const LIVE_CLIENTS: Section = Section {
    path: "gateway",
    about: &[],
    keys: keys! { live "gateway":
        /// Requests that each client (IPv4 address or IPv6 /64) may send in any 60 seconds.
        /// Why: the public contract; three per second are enough for a wallet that polls.
        requests_per_minute = Default(180);
        /// Concurrent requests of each client.
        /// Why: a page sends a few dozen at once, not hundreds.
        max_in_flight_per_client = Default(64);
        /// Networks whose clients have other limits: tables [[gateway.clients]], at the end of the
        /// file and instead of this line, each with networks, and with requests_per_minute,
        /// max_in_flight or both. Each client there has the limits for itself; the most specific
        /// network applies, and blocked and exempt come first.
        /// Why: the limits above are for the public; a partner's servers may need more.
        clients = Default([]);
        /// Peers whose X-Forwarded-For is trusted: networks or single addresses; [] for none.
        /// Why: a proxy on this machine; any other peer could claim any address.
        trusted_proxies = Default(["127.0.0.0/8", "::1/128"]);
    },
};

section! {
    /// The cache of answers that no later block can change.
    live "gateway.cache" CacheLive {
        /// false caches nothing and does not poll the chain.
        /// Why: immutable answers are large and requested often, classes above all.
        enabled: bool = Default(true), flag;
    }
}

section! {
    /// The bounds of the cache.
    more "gateway.cache" CacheConfig {
        /// Its memory, from 1 MiB; part of server.answer_memory, which must be 4 MiB larger.
        /// Why: about a hundred of the largest classes.
        size: Size = Default("64 MiB"), size(CACHE_SIZES, WHY_CACHE);
        /// Cached answers; 16 to 10000000.
        /// Why: bounds the overhead of small answers.
        max_entries: usize = Default(50000), integer(16..=10_000_000, WHY_MEMORY);
        /// Time between two polls of the chain, which detect reverted blocks; 100ms to 1m.
        /// Why: bounds how long a reverted answer is served; a poll is cheap.
        watch_interval: Duration = Default("1s"), duration(SHORTEST..=MINUTE, WHY_INTERVAL);
    }
}

section! {
    /// Bounds on each client connection of the gateway.
    "gateway.connections" ConnectionsConfig {
        /// Concurrent connections of all clients.
        /// Why: an idle one takes about 5 KiB, with TLS 17 to 19: up to 370 MiB for all of them.
        max: usize = Default(20000), integer(1..=1_000_000, WHY_SOCKETS);
        /// Concurrent connections of each client; trusted proxies are exempt.
        /// Why: a browser opens six; an office behind one address opens many more.
        max_per_client: usize = Default(256), integer(1..=1_000_000, WHY_SOCKETS);
        /// Size of a request head; 1 KiB to 256 KiB.
        /// Why: browsers send about 1 KiB, and each connection may buffer this much.
        header_size: Size = Default("16 KiB"), size(HEADER_SIZES, WHY_HEADER);
        /// Time to receive a whole request head; with TLS, also to complete the handshake.
        /// Why: a slower client only occupies a connection.
        header_timeout: Duration = Default("10s"), duration(TIMEOUTS, WHY_TIMEOUTS);
        /// Time to receive a whole request body.
        /// Why: 64 KiB arrive in time at 7 KB per second.
        body_timeout: Duration = Default("10s"), duration(TIMEOUTS, WHY_TIMEOUTS);
        /// Time for a client to receive a whole response; longer while it reads 8 KiB per second.
        /// Why: 4 MiB arrive in time at 70 KB per second, and steady readers get all of it.
        write_timeout: Duration = Default("60s"), duration(TIMEOUTS, WHY_TIMEOUTS);
        /// Time between two requests of a connection.
        /// Why: a wallet polls every few seconds; a client that left makes room.
        idle_timeout: Duration = Default("75s"), duration(TIMEOUTS, WHY_TIMEOUTS);
        /// The idle timeout of a trusted proxy: longer than the proxy keeps an idle connection.
        /// Why: a proxy loses the requests that it sends just then; Google's keeps one for 10m.
        proxy_idle_timeout: Duration = Default("11m"), duration(TIMEOUTS, WHY_TIMEOUTS);
        /// A connection of this age is closed after the request in progress; at most 24h.
        /// Why: clients then resolve the name again and are balanced anew.
        lifetime: Duration = Default("1h"), duration(SHORTEST..=DAY, WHY_TIMEOUTS);
    }
}

impl ConnectionsConfig {
    /// The bounds of the relay's listener: one backend with a few instances.
    pub const BACKEND: Self = Self {
        max: 4_096,
        max_per_client: 1_024,
        write_timeout: Duration::from_secs(60),
        ..Self::OPERATOR
    };

    /// The bounds of the sidecar's listener: feed readers and crawlers.
    pub const PUBLIC: Self = Self {
        max: 10_000,
        max_per_client: 256,
        ..Self::BACKEND
    };

    /// The bounds of the listener for ACME challenges: an authority, and browsers that are
    /// redirected. Each sends one request at once, so silent connections leave room for them soon.
    pub const CHALLENGES: Self = Self {
        max: 1_024,
        max_per_client: 32,
        idle_timeout: Duration::from_secs(5),
        ..Self::OPERATOR
    };

    /// The bounds of the operator's listener: a few local clients with small requests.
    pub const OPERATOR: Self = Self {
        max: 256,
        max_per_client: 256,
        header_size: Size::from_kib(16),
        header_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(75),
        proxy_idle_timeout: Duration::from_secs(11 * 60),
        lifetime: HOUR,
    };
}
