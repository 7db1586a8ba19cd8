//! Secrets that an attacker could read in the memory of a running relay.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Instant;

use portcullis_filters::felt::Felt;

use crate::support::client::{Client, PATIENCE};
use crate::support::client2::Client2;
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain::honest;
use crate::support::relay::devnet;
use crate::support::relay::stage::{Stage, TOKEN, authorised, post, setup};
use crate::support::request::Request;
use crate::support::secure::{Pair, secured};

/// A mapping of the process: its line in `/proc/PID/maps`, and its bytes.
struct Mapping(String, Vec<u8>);

/// The writable memory of a process, which after `PR_SET_DUMPABLE` the kernel shows to root alone.
fn memory(process: u32) -> Vec<Mapping> {
    let memory = File::open(format!("/proc/{process}/mem")).expect("this test runs as root");
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("it runs");
    let writable = maps.lines().filter(|line| line.contains(" rw"));
    let mappings = writable.filter_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        let (start, end) = (number(start), number(end));
        let mut bytes = vec![0; usize::try_from(end - start).expect("it fits")];
        // memory that was unmapped meanwhile is not there
        let read = memory.read_at(&mut bytes, start).ok()?;
        bytes.truncate(read);
        Some(Mapping(line.to_owned(), bytes))
    });
    mappings.collect()
}

/// The mappings in which `secret` is found, once for each time.
fn places(memory: &[Mapping], secret: &[u8]) -> Vec<String> {
    let finder = |Mapping(line, bytes): &Mapping| {
        let found = memchr::memmem::find_iter(bytes, secret).count();
        vec![line.clone(); found]
    };
    memory.iter().flat_map(finder).collect()
}

/// The forms in which a key could be left behind.
fn forms(text: &str) -> [(&'static str, Vec<u8>); 3] {
    let key = Felt::parse(text).expect("a felt").to_bytes_be();
    let reversed = key.iter().rev().copied().collect();
    [
        ("big-endian", key.to_vec()),
        ("little-endian", reversed),
        ("text", text.into()),
    ]
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn keys_are_in_their_locked_page_alone() {
    let (network, stage, user) = (devnet::network(), Stage::on_devnet(), devnet::funded());
    let (address, key) = (user.address, user.key.public_key());
    let drip = format!(r#"{{"identity":"0x5ca4","recipient":"{address}","public_key":"{key}"}}"#);
    assert_eq!(
        stage.post("/faucet-drip", drip).status,
        200,
        "a key was used"
    );
    let memory = memory(stage.edge.process());
    for role in ["owner", "verifier", "faucet"] {
        let text = fs::read_to_string(network.file(&format!("{role}.key"))).expect("a key");
        let found = forms(text.trim()).map(|(form, bytes)| (form, places(&memory, &bytes)));
        let all: Vec<_> = found.iter().flat_map(|(_, found)| found).collect();
        assert_eq!(all.len(), 1, "{role}: {found:?}");
    }
}

/// A new connection, inside TLS if the relay has a certificate.
fn connect(relay: SocketAddr, pair: Option<&Pair>) -> Client {
    pair.map_or_else(|| Client::connect(relay), |pair| pair.client(relay))
}

/// The places of `token` once there are none, or after a long time.
fn places_left(process: u32, token: &str) -> Vec<String> {
    let began = Instant::now();
    loop {
        // the end of a connection is seen a little after the client's
        let left = places(&memory(process), token.as_bytes());
        if left.is_empty() || began.elapsed() > PATIENCE {
            return left;
        }
    }
}

#[test]
fn no_freed_memory_holds_a_bearer_token() {
    const OPERATORS: &str = "token-of-the-operator-0123456789abc";
    let (folder, pair, node) = (Folder::new(), Pair::new(), Node::start(honest));
    pair.write(&folder);
    let operators = format!("\"{}\"", folder.secret("operator.token", OPERATORS));
    let plain = setup(node.address(), &folder, &[("admin.token_file", &operators)]);
    let readyz = || authorised(Request::new("GET", "/readyz"));
    let requests = [
        readyz(),
        authorised(Request::new("GET", "/nowhere")),
        post("/readyz", ""),
        post("/faucet-drip", "{}"),
        post("/rpc", r#"{"jsonrpc":"2.0","id":1,"method":"devnet_mint"}"#),
        // buffers grow
        readyz().with("X-Padding", &"x".repeat(6 << 10)),
        // too large
        readyz().with("X-Padding", &"x".repeat(18 << 10)),
        // in other places than where it belongs
        post("/faucet-drip", TOKEN.repeat(200)),
        Request::new("GET", "/readyz").with("Cookie", &format!("session={TOKEN}")),
    ];
    for (setup, pair) in [
        (plain.clone(), None),
        (secured(plain, "relay", &folder), Some(&pair)),
    ] {
        let edge = setup.start();
        let ask_each = || {
            for request in &requests {
                connect(edge.relay(), pair).ask(request);
                if let Some(pair) = pair {
                    let mut client = Client2::connect(edge.relay(), pair);
                    client.ask(request);
                    client.ask(request);
                }
            }
        };
        // in sequence, each request overwrites what the one before left on a stack
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(ask_each);
            }
        });
        // a head that is never completed
        let begun = format!("GET /readyz HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n");
        connect(edge.relay(), pair).send(begun);
        let page = Request::new("GET", "/").with("Authorization", &format!("Bearer {OPERATORS}"));
        assert_eq!(Client::connect(edge.admin()).ask(&page).status, 200);
        for token in [TOKEN, OPERATORS] {
            let left = places_left(edge.process(), token);
            assert!(left.is_empty(), "TLS: {}: {left:#?}", pair.is_some());
        }
    }
}
