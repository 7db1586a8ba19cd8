//! The configuration as an operator uses it: files and variables in, typed values or messages out.

mod accounts;
mod acme;
mod clients;
mod names;
mod values;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::time::Duration;
use std::{fs, iter};

use log::LevelFilter;
use portcullis_base::config::{
    Config, CorsOrigins, Errors, Listen, MAX_NODE_TIMEOUT, Size, TlsConfig, example,
};
use portcullis_filters::felt::Felt;
use portcullis_filters::rpc::Method;

use crate::support::folder::Folder;

/// The smallest file with a gateway and an operator's page.
const LEAST: &str = "[node]\nurl = \"http://127.0.0.1:5050/rpc\"\n[gateway]\n[admin]\n";

fn parse(text: &str) -> Result<Config, Errors> {
    Config::parse(text, iter::empty())
}

fn with_env(text: &str, env: &[(&str, &str)]) -> Result<Config, Errors> {
    Config::parse(
        text,
        env.iter().map(|(name, value)| (name.into(), value.into())),
    )
}

/// A key as the example file shows it.
struct Key {
    section: String,
    name: String,
    /// The value, as TOML.
    literal: String,
    /// The lines of its comment.
    doc: Vec<String>,
}

impl Key {
    fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    fn variable(&self) -> String {
        format!(
            "PORTCULLIS__{}",
            self.path().replace('.', "__").to_uppercase()
        )
    }

    fn is_required(&self) -> bool {
        self.doc[0].starts_with("Required")
    }
}

/// Every key of the example file.
fn keys() -> Vec<Key> {
    let (mut keys, mut section, mut doc) = (Vec::new(), String::new(), Vec::new());
    // a long list has a line for each item
    let text = example()
        .replace("[\n    ", "[")
        .replace(",\n    ", ", ")
        .replace(",\n]", "]");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some(text) = line.strip_prefix("# ") {
            doc.push(text.to_owned());
            continue;
        } else if let Some((name, literal)) = line.split_once(" = ") {
            doc.retain(|line| line != "Applied on SIGHUP.");
            let (section, name, literal) = (section.clone(), name.to_owned(), literal.to_owned());
            keys.push(Key {
                section,
                name,
                literal,
                doc: doc.clone(),
            });
        }
        doc.clear();
    }
    keys
}

/// Every section with its required keys, and one key set.
fn whole(path: &str, literal: &str) -> String {
    let (mut text, mut section) = (String::new(), String::new());
    for key in keys() {
        if key.section != section {
            section.clone_from(&key.section);
            text += &format!("[{section}]\n");
        }
        if key.path() == path {
            text += &format!("{} = {literal}\n", key.name);
        } else if key.is_required() {
            text += &format!("{} = {}\n", key.name, key.literal);
        }
    }
    text
}

fn is_of_the_whole(path: &str) -> bool {
    let sections = ["relay.", "sidecar.", "store.", "fleet.", "tls."];
    sections.iter().any(|section| path.starts_with(section)) || path.contains(".tls.")
}

/// [`LEAST`] with one key set, or [`whole`] if the key is of another section.
fn with(path: &str, literal: &str) -> String {
    let (section, key) = path.rsplit_once('.').unwrap();
    let line = format!("{key} = {literal}\n");
    match section {
        _ if is_of_the_whole(path) => whole(path, literal),
        "node" if key == "url" => format!("[node]\n{line}[gateway]\n[admin]\n"),
        "node" | "gateway" | "admin" => {
            let header = format!("[{section}]\n");
            LEAST.replace(&header, &format!("{header}{line}"))
        }
        _ => format!("{LEAST}[{section}]\n{line}"),
    }
}

fn messages(result: Result<Config, Errors>) -> Vec<String> {
    match result {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_example_file_shows_every_default() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/portcullis.toml");
    if std::env::var_os("UPDATE_EXAMPLE").is_some() {
        fs::write(path, example()).unwrap();
    }
    let committed = fs::read_to_string(path).unwrap();
    assert!(
        committed == example(),
        "conf/portcullis.toml differs from the rows in base/src/config; run this test with \
         UPDATE_EXAMPLE=1 to write it again"
    );
    assert_eq!(
        parse(&committed),
        parse(&whole("", "")),
        "the example file must load as the defaults do"
    );
    parse(&committed).unwrap();
}

#[test]
fn every_key_has_a_meaning_and_a_reason() {
    for key in keys() {
        let (path, (meaning, reason)) = (key.path(), key.doc.split_at(key.doc.len() - 1));
        assert!(
            meaning.iter().all(|line| !line.contains("Why: ")),
            "{path}: one reason"
        );
        assert!(
            meaning.last().is_some_and(|line| line.ends_with('.')),
            "{path}: its meaning"
        );
        let reason = reason[0]
            .strip_prefix("Why: ")
            .unwrap_or_else(|| panic!("{path}: a reason"));
        assert!(
            reason.ends_with('.') && reason.len() <= 90,
            "{path}: one short sentence"
        );
    }
}

#[test]
fn a_wrong_value_is_one_mistake_for_every_key() {
    let whole = whole("", "");
    for key in keys() {
        let (path, variable) = (key.path(), key.variable());
        let found = messages(parse(&with(&path, "{ }")));
        assert_eq!(found.len(), 1, "only {path} is wrong: {found:?}");
        assert!(
            found[0].contains(&path) && found[0].contains("found a table"),
            "{found:?}"
        );
        assert!(found[0].starts_with("line "), "{found:?}");
        let base = if is_of_the_whole(&path) {
            &*whole
        } else {
            LEAST
        };
        let found = messages(with_env(base, &[(&variable, "[[]]")]));
        assert_eq!(found.len(), 1, "only {path} is wrong: {found:?}");
        assert!(found[0].starts_with(&format!("environment variable {variable}: ")));
    }
}

#[test]
fn all_methods_are_served_by_default() {
    let gateway = parse(LEAST).unwrap().gateway.unwrap();
    assert_eq!(gateway.live.methods.len(), Method::ALL.len());
    assert!(
        Method::ALL
            .iter()
            .all(|method| gateway.live.methods.contains(method))
    );
}

#[test]
fn defaults_are_typed_values() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.server.threads, None);
    assert_eq!(config.server.answer_memory, Size::from_mib(256));
    assert_eq!(config.log.live.level, LevelFilter::Info);
    assert_eq!(config.node.timeout, MAX_NODE_TIMEOUT);
    assert_eq!(
        config.node.url.first().to_string(),
        "http://127.0.0.1:5050/rpc"
    );
    let gateway = config.gateway.unwrap();
    assert_eq!(
        gateway.listen,
        Listen::Tcp("127.0.0.1:8080".parse().unwrap())
    );
    assert_eq!(gateway.live.clients.requests_per_minute, 180);
    assert_eq!(gateway.live.cors_origins, CorsOrigins::Any);
    assert!(gateway.live.single_flight && gateway.live.cache.enabled);
    assert_eq!(gateway.cache.size, Size::from_mib(64));
    assert_eq!(gateway.cache.watch_interval, Duration::from_secs(1));
    assert_eq!(gateway.connections.lifetime, Duration::from_secs(3_600));
    assert_eq!(config.admin.unwrap().listen.to_string(), "127.0.0.1:8083");
}

#[test]
fn a_tls_section_needs_both_files() {
    assert_eq!(parse(LEAST).unwrap().gateway.unwrap().live.tls, None);
    let found = messages(parse(&format!("{LEAST}[gateway.tls]\n")));
    assert_eq!(found.len(), 2, "{found:?}");
    let files = "certificate_file = \"a.pem\"\nkey_file = \"a.key\"\n";
    let tls = parse(&format!("{LEAST}[gateway.tls]\n{files}"))
        .unwrap()
        .gateway
        .unwrap()
        .live
        .tls;
    let (certificate_file, key_file) = ("a.pem".into(), "a.key".into());
    let domains = Vec::new();
    assert_eq!(
        tls,
        Some(TlsConfig {
            domains,
            certificate_file,
            key_file,
            http2: true
        })
    );
    let alone = parse("[node]\nurl = \"http://h/\"\n[admin.tls]\nhttp2 = false\n");
    assert_eq!(
        messages(alone).len(),
        2,
        "the section switches its surface on"
    );
    let variables = [
        ("PORTCULLIS__GATEWAY__TLS__CERTIFICATE_FILE", "b.pem"),
        ("PORTCULLIS__GATEWAY__TLS__KEY_FILE", "b.key"),
    ];
    let tls = with_env(LEAST, &variables)
        .unwrap()
        .gateway
        .unwrap()
        .live
        .tls
        .unwrap();
    assert_eq!(
        tls.key_file,
        std::path::PathBuf::from("b.key"),
        "variables switch a section on"
    );
}

#[test]
fn the_relay_needs_policy_pins_and_keys() {
    let relay = parse(&whole("", "")).unwrap().relay.unwrap();
    assert_eq!(
        relay.pins.faucet, relay.pins.owner,
        "the owner pays by default"
    );
    let found = messages(parse(&format!("{LEAST}[relay]\n")));
    let is_of_the_relay =
        |key: &Key| key.section.starts_with("relay") && key.section != "relay.tls";
    let missing = keys()
        .into_iter()
        .filter(|key| key.is_required() && is_of_the_relay(key));
    assert_eq!(found.len(), missing.count(), "{found:?}");
    for (path, literal, expected) in [
        (
            "relay.policy.identity_verification_mode",
            "\"v1\"",
            "there is no other mode",
        ),
        (
            "relay.policy.verification_v2_required",
            "false",
            "expected true",
        ),
        ("relay.policy.ecosystem_ready", "\"true\"", "expected true"),
        (
            "relay.pins.verifier",
            "\"0x100\"",
            "the owner of the registry must not attest",
        ),
        (
            "relay.pins.owner",
            "\"0x0\"",
            "zero is no account, contract or class",
        ),
        ("relay.pins.faucet", "\"0x5\"", "or neither"),
        (
            "relay.keys.verifier_file",
            "\"owner.key\"",
            "the keys must differ",
        ),
        ("relay.events.url", "\"backend.test\"", "http://"),
        (
            "relay.events.url",
            "\"https://backend.test/\"",
            "events are signed",
        ),
        ("relay.token_files", "[]", "expected 1 to 2 items"),
        ("relay.token_files", "[\"a\", \"b\", \"c\"]", "found 3"),
        ("relay.policy.max_fee", "\"10\"", "with its unit"),
        (
            "relay.faucet_per_day",
            "0",
            "from 1 to 1000000, or \"\" for no limit",
        ),
        (
            "relay.faucet_per_day",
            "1000001",
            "found the integer 1000001",
        ),
        ("relay.faucet_per_day", "1.5", "found the float 1.5"),
        (
            "relay.fees_per_day",
            "\"0 STRK\"",
            "from 1000000000 fri to 1000000 STRK",
        ),
        (
            "relay.fees_per_day",
            "\"1000000.1 STRK\"",
            "or \"\" for no limit",
        ),
        ("relay.fees_per_day", "10", "with its unit"),
        (
            "relay.policy.usership_first_epoch",
            "1000001",
            "expected at least relay.policy.usership_first_epoch (1000001)",
        ),
        (
            "node.chain_id",
            "\"SN_MAIN\"",
            "expected node.chain_id, found \"PORTCULLIS_DEV\"",
        ),
        (
            "store.url",
            "\"postgres://u:secret@h/db\"",
            "belongs in the file",
        ),
        (
            "store.url",
            "\"mysql://h/db\"",
            "the scheme is neither sqlite: nor postgres://",
        ),
    ] {
        let found = messages(parse(&whole(path, literal)));
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert!(
            found[0].contains(expected),
            "{found:?} should have {expected:?}"
        );
    }
    let found = messages(parse(&whole("store.url", "\"postgres://u:secret@h/db\"")));
    assert!(!found[0].contains("secret"), "{found:?}");
}

#[test]
fn a_surface_without_its_section_is_switched_off() {
    let node = "[node]\nurl = \"http://node\"\n";
    let config = parse(&format!("{node}[admin]")).unwrap();
    assert!(config.gateway.is_none() && config.admin.is_some());
    let config = parse(&format!("{node}[gateway.connections]\nmax = 5")).unwrap();
    assert_eq!(config.gateway.unwrap().connections.max, 5);
    assert!(config.admin.is_none());
    let found = messages(parse(node));
    let expected = "gateway: expected [gateway], [relay], [sidecar] or [admin]: without them \
                    nothing is served";
    assert_eq!(found, [expected]);
}

#[test]
fn three_mistakes_are_reported_at_once() {
    let text = "[node]\nurl = \"http://node\"\ntimout = \"5s\"\n\
                [gateway]\nrequests_per_minute = \"many\"\nlisten = \"localhost:8080\"\n";
    let found = parse(text).unwrap_err().to_string();
    let expected = "\
line 3, column 1: node.timout: unknown key; did you mean node.timeout?
line 5, column 23: gateway.requests_per_minute: expected an integer from 1 to 1000000000 (zero \
refuses all clients, and the limiter counts in 32 bits), found \"many\"
line 6, column 10: gateway.listen: expected address:port or unix:/absolute/path, found \
\"localhost:8080\": host names are not accepted; write the address, such as 127.0.0.1:8080";
    assert_eq!(found, expected);
}

#[test]
fn each_list_item_is_checked_at_its_place() {
    let text = with(
        "gateway.methods",
        "[\n \"starknet_cal\",\n \"starknet_call\",\n 5,\n]",
    );
    let found = messages(parse(&text));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("line 5, column 2: gateway.methods: "),
        "{found:?}"
    );
    assert!(
        found[0].ends_with("did you mean starknet_call?"),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("line 7, column 2: gateway.methods: "),
        "{found:?}"
    );
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    for (text, expected) in [
        (
            "[gateway]\nlisen = 1",
            "gateway.lisen: unknown key; did you mean gateway.listen?",
        ),
        (
            "[gateway]\nmax_per_client = 1",
            "did you mean gateway.connections.max_per_client?",
        ),
        (
            "[gateway]\nburst = 1",
            "[gateway] has listen, methods, cors_origins, single_flight, docs, gzip, exempt",
        ),
        (
            "[gatway]\nlisten = \"\"",
            "gatway: unknown section; did you mean [gateway]?",
        ),
        (
            "[gateway.conections]",
            "did you mean [gateway.connections]?",
        ),
        (
            "[rely]\ntoken = 1",
            "rely: unknown section; did you mean [relay]?",
        ),
        (
            "[siphon]\ntoken = 1",
            "siphon: unknown section; the sections are server, log, node,",
        ),
        (
            "\"gateway.listen\" = 1",
            "gateway.listen: unknown key; did you mean gateway.listen?",
        ),
        ("\"a\\nb\" = 1", "a\\nb: unknown key; the sections are"),
        (
            "[[gateway]]",
            "gateway: expected a table written as [gateway], found an array",
        ),
        (
            "log = 5",
            "log: expected a table written as [log], found the integer 5",
        ),
    ] {
        let text = format!("{text}\n[node]\nurl = \"http://node\"\n[admin]");
        let found = messages(parse(&text));
        assert_eq!(found.len(), 1, "one mistake: {found:?}");
        assert!(found[0].starts_with("line "), "{found:?}");
        assert!(
            found[0].contains(expected),
            "{found:?} should have {expected:?}"
        );
    }
}

#[test]
fn each_syntax_error_has_its_line_and_column() {
    let text = "[gateway\nlisten = \"x\"\n[node]\nurl = http://node\n";
    let found = messages(parse(text));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("line 1, column 9: not valid TOML: "),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("line 4, column 7: not valid TOML: "),
        "{found:?}"
    );
}

#[test]
fn a_duplicate_name_hides_no_other_mistake() {
    let text = format!("{LEAST}listen = 5\nlisten = 6\n");
    let found = messages(parse(&text));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("line 5, column 10: admin.listen: expected address"),
        "{found:?}"
    );
    assert_eq!(
        found[1],
        "line 6, column 1: \"listen\" is set twice; remove one"
    );
}

#[test]
fn the_environment_overrides_the_file() {
    let text = with("gateway.listen", "\"127.0.0.1:9999\"");
    let config = with_env(
        &text,
        &[
            ("PORTCULLIS__GATEWAY__LISTEN", "127.0.0.1:0"),
            ("PORTCULLIS__GATEWAY__REQUESTS_PER_MINUTE", "1_000"),
            ("PORTCULLIS__GATEWAY__CONNECTIONS__HEADER_SIZE", "\"8 KiB\""),
            (
                "PORTCULLIS__GATEWAY__METHODS",
                "[\"starknet_call\", \"starknet_chainId\"]",
            ),
            ("PORTCULLIS__GATEWAY__CORS_ORIGINS", "https://app.example"),
            ("PORTCULLIS__GATEWAY__TRUSTED_PROXIES", "[]"),
            ("PORTCULLIS__NODE__TIMEOUT", "5s"),
            ("PORTCULLIS_GATEWAY_PORT", "tcp://10.0.0.1:8080"),
            ("PATH", "/bin"),
        ],
    );
    let config = config.unwrap();
    assert_eq!(config.node.timeout, Duration::from_secs(5));
    let gateway = config.gateway.unwrap();
    assert_eq!(gateway.listen.to_string(), "127.0.0.1:0");
    assert_eq!(gateway.live.clients.requests_per_minute, 1_000);
    assert_eq!(gateway.connections.header_size, Size::from_kib(8));
    let methods: Vec<_> = gateway
        .live
        .methods
        .iter()
        .map(|method| method.name())
        .collect();
    assert_eq!(methods, ["starknet_call", "starknet_chainId"]);
    assert_eq!(
        gateway.live.cors_origins,
        CorsOrigins::List(vec!["https://app.example".to_owned()])
    );
    assert_eq!(gateway.live.clients.trusted_proxies, []);
}

#[test]
fn a_variable_that_resembles_a_number_is_text() {
    let felt = format!("0x{}", "6".repeat(63));
    let env = [
        ("RELAY__PINS__OWNER", &*felt),
        ("RELAY__PINS__CARD_CLASS", "0x1"),
        ("RELAY__TOKEN_FILES", "123"),
        ("RELAY__POLICY__ASSURANCE_TYPES", "18"),
        ("RELAY__POLICY__USERSHIP_LAST_EPOCH", "18446744073709551615"),
        ("SIDECAR__AGE__SIGNATURE_HEADER", "true"),
        ("SIDECAR__AGE__WEBHOOK_SECRET_FILES", "2026-11-22"),
        ("SIDECAR__SESSION__ISSUER", "1e400"),
        ("ADMIN__TOKEN_FILE", "0777"),
    ];
    let env = env.map(|(key, value)| (format!("PORTCULLIS__{key}"), value));
    let env = env.iter().map(|(name, value)| (name.into(), value.into()));
    let config = Config::parse(&whole("", ""), env).unwrap();
    let (relay, sidecar) = (config.relay.unwrap(), config.sidecar.unwrap());
    assert_eq!(Felt::parse(&felt), Some(relay.pins.owner));
    assert_eq!(relay.pins.card.class, Felt::from(1_u64));
    assert_eq!(relay.live.token_files.first(), Path::new("123"));
    assert_eq!(relay.live.policy.assurance_types.first(), "18");
    assert_eq!(relay.live.policy.usership_last_epoch, u64::MAX);
    assert_eq!(sidecar.live.age.signature_header, "true");
    assert_eq!(
        sidecar.live.age.webhook_secret_files,
        [Path::new("2026-11-22")]
    );
    assert_eq!(sidecar.live.session.issuer.as_deref(), Some("1e400"));
    assert_eq!(
        config.admin.unwrap().live.token_file.as_deref(),
        Some(Path::new("0777"))
    );
}

#[test]
fn the_environment_can_be_the_whole_configuration() {
    let env = [
        ("PORTCULLIS__NODE__URL", "http://node:5050"),
        ("PORTCULLIS__GATEWAY__CONNECTIONS__MAX", "7"),
    ];
    let config = with_env("", &env).unwrap();
    assert_eq!(config.gateway.unwrap().connections.max, 7);
    assert_eq!(config.node.url.first().path, "/");
    assert!(config.admin.is_none());
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    for (name, value, expected) in [
        (
            "GATEWAY__LISTN",
            "x",
            "gateway.listn: unknown key; did you mean PORTCULLIS__GATEWAY__LI",
        ),
        (
            "gateway__listen",
            "x",
            "gateway.listen: unknown key; did you mean PORTCULLIS__GATEWAY__",
        ),
        (
            "NODE__ULR",
            "x",
            "node.ulr: unknown key; did you mean PORTCULLIS__NODE__URL?",
        ),
        (
            "GATEWAY",
            "x",
            "gateway: unknown key; the sections are server, log,",
        ),
        (
            "ADMIN__PORT",
            "1",
            "admin.port: unknown key; [admin] has listen",
        ),
        (
            "GATEWAY__MAX_CLIENTS",
            "",
            "gateway.max_clients: expected an integer from 1",
        ),
        (
            "GATEWAY__METHODS",
            "[\"starknet_call\", 3]",
            "read method, found the integer 3;",
        ),
        (
            "NODE__TIMEOUT",
            "8",
            "expected a duration with its unit (ms, s, m, h or d), such as \"8s\"",
        ),
        (
            "ADMIN__LISTEN",
            "127.0.0.1:8080",
            "admin.listen: expected another address than gateway",
        ),
    ] {
        let name = format!("PORTCULLIS__{name}");
        let found = messages(with_env(LEAST, &[(&name, value)]));
        assert_eq!(found.len(), 1, "one mistake: {found:?}");
        let start = format!("environment variable {name}: ");
        assert!(
            found[0].starts_with(&start),
            "{found:?} should start with {start:?}"
        );
        assert!(
            found[0].contains(expected),
            "{found:?} should have {expected:?}"
        );
    }
}

#[test]
fn only_our_variables_must_be_utf8() {
    let broken = || OsString::from_vec(vec![0xff]);
    let found = messages(Config::parse(
        LEAST,
        [(OsString::from("PORTCULLIS__LOG__LEVEL"), broken())],
    ));
    let expected = "environment variable PORTCULLIS__LOG__LEVEL: log.level: the value is not UTF-8";
    assert_eq!(found, [expected]);
    Config::parse(
        LEAST,
        [(OsString::from("OTHER"), broken()), (broken(), broken())],
    )
    .unwrap();
}

#[test]
fn errors_are_sorted_by_place() {
    let text =
        "[gateway]\nmax_clients = 0\n[log]\nlevel = \"loud\"\n[gateway.connections]\nmax = 0";
    let errors = with_env(text, &[("PORTCULLIS__LOG__FORMAT", "xml")]).unwrap_err();
    let keys: Vec<_> = errors.iter().map(|error| error.key.as_str()).collect();
    let expected = [
        "gateway.max_clients",
        "log.level",
        "gateway.connections.max",
        "log.format",
        "node.url",
    ];
    assert_eq!(keys, expected, "{errors}");
}

#[test]
fn a_long_value_is_cut_to_one_line() {
    let text = with("log.level", &format!("\"a\\n{}\"", "b".repeat(500)));
    let found = messages(parse(&text));
    let value = format!("\"a\\n{}…\"", "b".repeat(57));
    assert!(
        found[0].contains(&value) && !found[0].contains('\n'),
        "{found:?}"
    );
}

#[test]
fn a_file_is_loaded_or_its_error_named() {
    let folder = Folder::new();
    let path = folder.path().join("portcullis.toml");

    let missing = Config::load(&path, []).unwrap_err().to_string();
    fs::write(&path, LEAST).unwrap();
    let loaded = Config::load(&path, []);
    fs::write(&path, "[node]\nurl = 5\n[gateway]\nlisten = 5\n").unwrap();
    let invalid = Config::load(&path, []).unwrap_err().to_string();
    fs::write(&path, " ".repeat((1 << 20) + 1)).unwrap();
    let large = Config::load(&path, []).unwrap_err().to_string();

    assert!(
        missing.starts_with("cannot read the configuration file "),
        "{missing}"
    );
    assert_eq!(loaded.unwrap(), parse(LEAST).unwrap());
    assert!(
        invalid.starts_with("2 errors in the configuration ("),
        "{invalid}"
    );
    assert_eq!(
        invalid.lines().count(),
        3,
        "a headline, then one line per error: {invalid}"
    );
    assert!(large.ends_with("it is larger than 1 MiB"), "{large}");
}
