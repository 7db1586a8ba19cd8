//! Each key of the configuration, changed by a reload: it acts, or is reported as needing a
//! restart. `DIR` stands for the folder of a test.

use std::collections::BTreeMap;
use std::iter;

use portcullis_base::config::{Config, example};

use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain::{OWNER_KEY, VERIFIER_KEY};
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::script::good;
use crate::support::secure::{ANY, Pair, handshake};

/// Keys with one accepted value.
const FIXED: [&str; 4] = [
    "relay.policy.identity_verification_mode",
    "relay.policy.verification_v2_required",
    "relay.policy.ecosystem_ready",
    "tls.acme.terms_accepted",
];

/// What differs from the example file before the change, where other keys demand it, or a process
/// that starts.
const BEFORE: &str = r#"
node.ca_file = "DIR/old.pem"
node.header_file = "DIR/old.headers"
gateway.listen = "127.0.0.1:0"
gateway.tls.certificate_file = "DIR/old.pem"
gateway.tls.key_file = "DIR/old.key"
relay.listen = "127.0.0.1:0"
relay.token_files = "DIR/old.token"
relay.tls.certificate_file = "DIR/old.pem"
relay.tls.key_file = "DIR/old.key"
relay.events.url = "http://127.0.0.1:1/events"
relay.events.secret_file = "DIR/old.events"
relay.pins.faucet = "0x102"
relay.keys.owner_file = "DIR/owner.key"
relay.keys.verifier_file = "DIR/verifier.key"
relay.keys.faucet_file = "DIR/faucet.key"
sidecar.listen = "127.0.0.1:0"
sidecar.tls.certificate_file = "DIR/old.pem"
sidecar.tls.key_file = "DIR/old.key"
store.url = "postgres://portcullis@127.0.0.1:1/portcullis"
store.password_file = "DIR/old.password"
store.tls = "verify-full"
store.ca_file = "DIR/old.pem"
fleet.url = "valkeys://127.0.0.1:1"
fleet.ca_file = "DIR/old.pem"
fleet.secret_file = "DIR/old.token"
trace.endpoint = "http://127.0.0.1:1"
admin.listen = "127.0.0.1:0"
admin.tls.certificate_file = "DIR/old.pem"
admin.tls.key_file = "DIR/old.key"
tls.acme.directory = "https://127.0.0.1:1/directory"
tls.acme.folder = "DIR/acme"
tls.acme.eab_key_id = "id"
tls.acme.eab_key_file = "DIR/eab.key"
"#;

/// Another value of each key.
const AFTER: &str = r#"
server.threads = 2
server.drain_delay = "1s"
server.grace_period = "16s"
server.answer_memory = "300 MiB"
log.level = "debug"
log.format = "text"
log.clients = "truncated"
log.sample_rate = 10
node.url = "http://127.0.0.1:2/"
node.chain_id = "PORTCULLIS_DEV"
node.anchor = 1
node.mode = "replicas"
node.max_lag = 9
node.max_block_age = "5m"
node.ca_file = "DIR/new.pem"
node.header_file = "DIR/new.headers"
node.timeout = "7s"
node.connect_timeout = "1s"
node.idle_timeout = "31s"
node.connection_lifetime = "11m"
node.max_idle = 255
node.max_connections = 1023
secrets.allow_group_read = true
gateway.listen = "127.0.0.1:65001"
gateway.methods = ["starknet_chainId"]
gateway.cors_origins = ["https://app.example"]
gateway.single_flight = false
gateway.docs = true
gateway.gzip = false
gateway.exempt = ["192.0.2.0/24"]
gateway.blocked = ["198.51.100.0/24"]
gateway.clients = [{ networks = "203.0.113.0/24", requests_per_minute = 9 }]
gateway.requests_per_minute = 181
gateway.max_clients = 99999
gateway.max_in_flight_per_client = 63
gateway.trusted_proxies = ["192.0.2.1/32"]
gateway.proxy_protocol = true
gateway.tls.certificate_file = "DIR/new.pem"
gateway.tls.key_file = "DIR/new.key"
gateway.tls.http2 = false
gateway.cache.enabled = false
gateway.cache.size = "65 MiB"
gateway.cache.max_entries = 49999
gateway.cache.watch_interval = "2s"
gateway.connections.max = 19999
gateway.connections.max_per_client = 255
gateway.connections.header_size = "15 KiB"
gateway.connections.header_timeout = "11s"
gateway.connections.body_timeout = "11s"
gateway.connections.write_timeout = "61s"
gateway.connections.idle_timeout = "76s"
gateway.connections.proxy_idle_timeout = "12m"
gateway.connections.lifetime = "2h"
relay.listen = "127.0.0.1:65002"
relay.token_files = "DIR/new.token"
relay.pins_max_age = "6s"
relay.operations = ["mint-card"]
relay.receipt_timeout = "11s"
relay.confirmations = 11
relay.faucet_per_day = 5
relay.fees_per_day = "5 STRK"
relay.requests_per_minute = 601
relay.max_clients = 9999
relay.max_in_flight_per_client = 255
relay.trusted_proxies = ["192.0.2.1/32"]
relay.proxy_protocol = true
relay.tls.certificate_file = "DIR/new.pem"
relay.tls.key_file = "DIR/new.key"
relay.tls.http2 = false
relay.policy.max_calls = 7
relay.policy.max_calldata = 255
relay.policy.max_l2_gas = 500000001
relay.policy.max_fee = "11 STRK"
relay.policy.assurance_types = ["age_over_21"]
relay.policy.assurance_levels = [1, 2]
relay.policy.usership_first_epoch = 2
relay.policy.usership_last_epoch = 1000001
relay.policy.faucet_amount = "11 STRK"
relay.policy.faucet_cooldown = "23h"
relay.policy.recovery_cancel_window = "23h"
relay.events.url = "http://127.0.0.1:2/events"
relay.events.secret_file = "DIR/new.events"
relay.pins.chain_id = "OTHER"
relay.pins.account_class = "0x5"
relay.pins.owner = "0x1100"
relay.pins.verifier = "0x1101"
relay.pins.faucet = "0x1102"
relay.pins.l1_bridge = "0x11"
relay.pins.minimum_balance = "2 STRK"
relay.pins.token = "0x1206"
relay.pins.token_class = "0x1306"
relay.pins.registry = "0x1200"
relay.pins.registry_class = "0x1300"
relay.pins.staking = "0x1201"
relay.pins.staking_class = "0x1301"
relay.pins.card = "0x1202"
relay.pins.card_class = "0x1302"
relay.pins.usership = "0x1203"
relay.pins.usership_class = "0x1303"
relay.pins.bridge = "0x1204"
relay.pins.bridge_class = "0x1304"
relay.keys.owner_file = "DIR/other-owner.key"
relay.keys.verifier_file = "DIR/other-verifier.key"
relay.keys.faucet_file = "DIR/other-faucet.key"
sidecar.listen = "127.0.0.1:65003"
sidecar.base_url = "https://other.example"
sidecar.gzip = false
sidecar.operator_token_file = "DIR/new.token"
sidecar.exempt = ["192.0.2.0/24"]
sidecar.requests_per_minute = 602
sidecar.max_clients = 99999
sidecar.max_in_flight_per_client = 63
sidecar.trusted_proxies = ["192.0.2.1/32"]
sidecar.proxy_protocol = true
sidecar.tls.certificate_file = "DIR/new.pem"
sidecar.tls.key_file = "DIR/new.key"
sidecar.tls.http2 = false
sidecar.feeds.publisher_did = "did:web:publisher.example"
sidecar.feeds.service_did = "did:web:service.example"
sidecar.feeds.privacy_policy = "https://other.example/privacy"
sidecar.feeds.terms_of_service = "https://other.example/terms"
sidecar.feeds.blocked_labels = ["spam"]
sidecar.session.issuer = "issuer"
sidecar.session.audience = "audience"
sidecar.session.hs256_secret_files = ["DIR/new.token"]
sidecar.session.jwks_url = "https://other.example/keys"
sidecar.session.plc_url = "https://plc.example"
sidecar.session.localhost_dids = true
sidecar.age.webhook_secret_files = ["DIR/new.token"]
sidecar.age.signature_header = "x-signature"
sidecar.age.age_bands = ["18_plus"]
sidecar.age.verification_url = "https://other.example/{subject_ref}"
sidecar.age.session_lifetime = "23h"
sidecar.age.validity = "364d"
sidecar.podcasts.redirect_moved = true
sidecar.podcasts.hub_url = "https://hub.example/"
sidecar.robots.indexing = false
sidecar.robots.disallow = ["/private/"]
sidecar.robots.blocked_agents = ["SomeBot"]
sidecar.health.platform = "https://other.example/platform"
sidecar.health.card_data = ["tcg=https://other.example"]
sidecar.health.pds = "https://other.example/pds"
sidecar.health.email = "https://other.example/email"
sidecar.health.web_push = "https://other.example/push"
sidecar.health.podcast_syndication = "https://other.example/podcast"
sidecar.health.payments = ["card=https://other.example"]
sidecar.health.expect = ["pds=302"]
store.url = "postgres://portcullis@127.0.0.1:1/other"
store.read_url = "postgres://portcullis@127.0.0.1:1/replica"
store.password_file = "DIR/new.password"
store.max_connections = 9
store.connection_lifetime = "11m"
store.tls = "off"
store.ca_file = "DIR/new.pem"
fleet.url = "valkeys://127.0.0.1:2"
fleet.password_file = "DIR/new.password"
fleet.ca_file = "DIR/new.pem"
fleet.secret_file = "DIR/new.token"
fleet.name = "other"
fleet.when_down = "local"
fleet.floor_per_minute = 31
fleet.lease = "31s"
trace.endpoint = "http://127.0.0.1:2"
trace.service_name = "other"
trace.resource_attributes = "service.namespace=other"
trace.header_file = "DIR/new.headers"
trace.ratio = 0.5
trace.per_second = 11
trace.slow = "2s"
admin.listen = "127.0.0.1:65004"
admin.token_file = "DIR/new.token"
admin.ready_needs_node = true
admin.tls.certificate_file = "DIR/new.pem"
admin.tls.key_file = "DIR/new.key"
admin.tls.http2 = false
tls.acme.directory = "https://127.0.0.1:2/directory"
tls.acme.contact = ["ops@example.org"]
tls.acme.folder = "DIR/other"
tls.acme.eab_key_id = "other"
tls.acme.eab_key_file = "DIR/other.key"
tls.acme.ca_file = "DIR/new.pem"
tls.acme.http_address = "127.0.0.1:65005"
tls.acme.http_redirect = false
"#;

type Keys = BTreeMap<String, String>;

fn keys(text: &str) -> Keys {
    let pairs = text.lines().filter_map(|line| line.split_once(" = "));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Each key of the example file with its value, and whether the file says that SIGHUP applies it.
pub(crate) fn documented() -> BTreeMap<String, (String, bool)> {
    let text = example().replace("[\n    ", "[").replace(",\n]", "]");
    let text = text.replace(",\n    ", ", ").replace(",\n", ", ");
    let (mut found, mut section, mut live) = (BTreeMap::new(), "", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if line == "# Applied on SIGHUP." {
            live = true;
        } else if let Some((key, value)) = line.split_once(" = ")
            && !line.starts_with('#')
        {
            found.insert(format!("{section}.{key}"), (value.to_owned(), live));
            live = false;
        }
    }
    found
}

/// The example file with the values of [`BEFORE`].
fn before() -> Keys {
    let documented = documented().into_iter();
    let mut all: Keys = documented.map(|(key, (value, _))| (key, value)).collect();
    all.extend(keys(BEFORE));
    all
}

/// The keys with an ordered certificate for this domain on each listener, instead of files.
fn with_domain(mut all: Keys, domain: &str) -> Keys {
    all.retain(|key, _| !key.ends_with(".tls.certificate_file") && !key.ends_with(".tls.key_file"));
    for surface in ["gateway", "relay", "sidecar", "admin"] {
        all.insert(format!("{surface}.tls.domains"), format!("[\"{domain}\"]"));
    }
    all
}

fn parse(all: &Keys, changed: &str) -> Config {
    let lines = all.iter().map(|(key, value)| format!("{key} = {value}\n"));
    let parsed = Config::parse(&lines.collect::<String>(), iter::empty());
    parsed.unwrap_or_else(|errors| panic!("{changed}: {errors}"))
}

#[test]
fn a_reload_hands_over_exactly_the_live_keys() {
    let others = keys(AFTER);
    for (key, (_, live)) in documented() {
        if FIXED.contains(&&*key) {
            assert!(!live, "{key} cannot change");
            continue;
        }
        let (old, new) = if key.ends_with(".tls.domains") {
            let old = with_domain(before(), "a.test");
            let mut new = old.clone();
            new.insert(key.clone(), "[\"b.test\"]".to_owned());
            (old, new)
        } else {
            let (mut old, mut new) = (before(), before());
            let other = others
                .get(&key)
                .unwrap_or_else(|| panic!("{key} has no row"));
            new.insert(key.clone(), other.clone());
            if key == "store.tls" {
                old.remove("store.ca_file");
                new.remove("store.ca_file");
            }
            (old, new)
        };
        let (old, new) = (parse(&old, &key), parse(&new, &key));
        let changes = old.values.changes(&new.values);
        let names: Vec<_> = changes.iter().map(|change| change.key).collect();
        assert_eq!(names, [&*key], "one key changed");
        let is_handed_over = old.live() != new.live();
        // the policy for secrets applies while the files are read
        let is_handed_over = is_handed_over || old.secrets != new.secrets;
        // an authority and its folder name the files of ordered certificates, which are kept
        assert_eq!(is_handed_over, live, "{key} is handed over");
    }
}

fn set(setup: Setup, all: &Keys, folder: &Folder) -> Setup {
    let folder = folder.path().display().to_string();
    all.iter().fold(setup, |setup, (key, value)| {
        setup.set(key, &value.replace("DIR", &folder))
    })
}

fn assert_reported(edge: &Edge, old: &Keys, new: &Keys) {
    let documented = documented();
    for (key, value) in new {
        if old.get(key) == Some(value) {
            continue;
        }
        let line = edge.line(key, |line| {
            line["message"] == "configuration changed" && line["key"] == **key
        });
        let expected = if documented[key].1 {
            "now"
        } else {
            "after a restart"
        };
        assert_eq!(line["effective"], expected, "{key}");
    }
}

#[test]
fn each_changed_key_acts_or_needs_a_restart() {
    let (node, folder) = (Node::start(good), Folder::new());
    let (first, second) = (Pair::new(), Pair::new());
    for (pair, name) in [(&first, "old"), (&second, "new")] {
        folder.secret(&format!("{name}.pem"), &pair.certificate);
        folder.secret(&format!("{name}.key"), &pair.key);
        folder.secret(&format!("{name}.token"), &name.repeat(20));
        folder.secret(&format!("{name}.password"), name);
        folder.secret(&format!("{name}.headers"), &format!("X-Key: {name}\n"));
        let secret = format!("whsec_{}\n", name.repeat(16).get(..48).unwrap_or_default());
        folder.secret(&format!("{name}.events"), &secret);
    }
    folder.secret("owner.key", OWNER_KEY);
    folder.secret("verifier.key", VERIFIER_KEY);
    folder.secret("faucet.key", "0x5");
    folder.secret("eab.key", "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0");
    let mut old = before();
    old.insert(
        "node.url".to_owned(),
        format!("\"http://{}/rpc\"", node.address()),
    );
    let setup = Setup::before(node.address());
    let edge = set(setup.clone(), &old, &folder).start();
    assert_eq!(
        first
            .client(edge.gateway())
            .ask(&Request::post(QUESTION))
            .status,
        200,
        "it is served before"
    );

    let mut new = old.clone();
    new.extend(keys(AFTER));
    // these conflict with each other
    new.insert(
        "relay.pins.chain_id".to_owned(),
        "\"PORTCULLIS_DEV\"".to_owned(),
    );
    new.insert("store.tls".to_owned(), "\"verify-full\"".to_owned());
    edge.rewrite(&set(setup.clone(), &new, &folder));
    edge.signal("HUP");
    assert_reported(&edge, &old, &new);
    edge.line("a reported content", |line| line["level"] == "debug");
    assert_acts(&edge, &second);
    let calls = node.calls();
    let last = calls.last().expect("the gateway asked the node");
    let header = ("x-key".to_owned(), "new".to_owned());
    assert!(last.headers().contains(&header), "node.header_file");

    let last = with_domain(new.clone(), "a.test");
    edge.rewrite(&set(setup, &last, &folder));
    edge.signal("HUP");
    assert_reported(&edge, &new, &last);
}

/// The requests that show the new values, over the new certificate.
fn assert_acts(edge: &Edge, pair: &Pair) {
    let (_, protocol) = handshake(edge.gateway(), pair.config(ANY, &["h2", "http/1.1"]))
        .expect("gateway.tls.certificate_file and key_file");
    assert_eq!(protocol.as_deref(), Some("http/1.1"), "gateway.tls.http2");
    let mut gateway = pair.client(edge.gateway());
    let nonce = rpc("1", "starknet_getNonce", r#"["latest","0x1"]"#);
    let refused = gateway.ask(&Request::post(nonce));
    assert_eq!(refused.status, 403, "gateway.methods");
    let policy = refused.header("RateLimit-Policy");
    assert_eq!(policy, Some("\"minute\";q=181;w=60"), "requests_per_minute");
    let page = Request::post(rpc("1", "starknet_chainId", "[]"));
    let other = gateway.ask(&page.clone().with("Origin", "https://other.example"));
    let origin = other.header("Access-Control-Allow-Origin");
    assert_ne!(origin, Some("*"), "gateway.cors_origins");
    let docs = gateway.ask(&Request::new("GET", "/docs"));
    assert_eq!(docs.status, 200, "gateway.docs");

    let mut relay = pair.client(edge.relay());
    let ready = Request::new("GET", "/readyz");
    let with = |token: &str| {
        ready
            .clone()
            .with("Authorization", &format!("Bearer {token}"))
    };
    assert_eq!(
        relay.ask(&with(&"old".repeat(20))).status,
        401,
        "relay.token_files"
    );
    let ready = relay.ask(&with(&"new".repeat(20)));
    assert_ne!(ready.status, 401, "relay.token_files");
    let policy = ready.header("RateLimit-Policy");
    assert_eq!(
        policy,
        Some("\"minute\";q=601;w=60"),
        "relay.requests_per_minute"
    );

    let mut sidecar = pair.client(edge.sidecar());
    let robots = sidecar.ask(&Request::new("GET", "/robots.txt"));
    assert!(
        robots.text().contains("Disallow: /\n"),
        "sidecar.robots.indexing"
    );
    let policy = robots.header("RateLimit-Policy");
    assert_eq!(
        policy,
        Some("\"minute\";q=602;w=60"),
        "sidecar.requests_per_minute"
    );
    let described = sidecar.ask(&Request::new(
        "GET",
        "/xrpc/app.bsky.feed.describeFeedGenerator",
    ));
    for (shown, key) in [
        ("did:web:publisher.example", "sidecar.feeds.publisher_did"),
        ("did:web:service.example", "sidecar.feeds.service_did"),
        (
            "https://other.example/privacy",
            "sidecar.feeds.privacy_policy",
        ),
        (
            "https://other.example/terms",
            "sidecar.feeds.terms_of_service",
        ),
    ] {
        assert!(
            described.text().contains(shown),
            "{key}: {}",
            described.text()
        );
    }

    let mut admin = pair.client(edge.admin());
    let metrics = Request::new("GET", "/metrics");
    assert_eq!(admin.ask(&metrics).status, 401, "admin.token_file");
}
