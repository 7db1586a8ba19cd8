//! Accepted and refused values of every key, and the messages for refused ones.

use std::time::Duration;

use portcullis_base::config::{Amount, CorsOrigins, Readable, Size};

use super::{LEAST, messages, parse, whole, with, with_env};

#[test]
fn values_at_the_edge_are_accepted() {
    for (path, literal) in [
        ("server.threads", "1024"),
        ("server.threads", "0x10"),
        ("server.drain_delay", "\"1h\""),
        ("server.grace_period", "\"0s\""),
        ("server.answer_memory", "\"68 MiB\""),
        ("server.answer_memory", "\"1024 GiB\""),
        ("log.level", "\"debug\""),
        ("log.format", "\"text\""),
        ("log.clients", "\"truncated\""),
        ("log.sample_rate", "1000000"),
        ("node.chain_id", "\"SN_MAIN\""),
        ("node.anchor", "18446744073709551615"),
        ("node.timeout", "\"8s\""),
        ("node.connect_timeout", "\"100 ms\""),
        ("node.max_idle", "65535"),
        ("gateway.requests_per_minute", "1_000_000_000"),
        ("gateway.max_clients", "10000000"),
        ("gateway.methods", "\"starknet_call\""),
        ("gateway.trusted_proxies", "[]"),
        ("gateway.cors_origins", "[]"),
        ("gateway.cache.size", "\"1 MiB\""),
        ("gateway.cache.size", "\"252 MiB\""),
        ("gateway.cache.max_entries", "10000000"),
        ("gateway.cache.watch_interval", "\"100ms\""),
        ("gateway.connections.header_size", "\"1KiB\""),
        ("gateway.connections.header_size", "\"256 KiB\""),
        ("gateway.connections.lifetime", "\"24h\""),
        ("admin.listen", "\"unix:/run/portcullis/admin.sock\""),
        ("admin.listen", "\"[::1]:0\""),
        ("admin.listen", "\"127.9.9.9:1\""),
    ] {
        let found = messages(parse(&with(path, literal)));
        assert!(found.is_empty(), "{path} = {literal} is fine: {found:?}");
    }
}

#[test]
fn values_out_of_range_are_refused_with_the_range() {
    for (path, literal, expected) in [
        ("server.threads", "1025", "an integer from 0 to 1024 ("),
        ("server.threads", "-1", "found the integer -1"),
        ("log.sample_rate", "0", "an integer from 1 to 1000000 ("),
        (
            "server.drain_delay",
            "\"61m\"",
            "a duration from 0s to 1h (",
        ),
        (
            "server.grace_period",
            "\"2h\"",
            "a duration from 0s to 1h (",
        ),
        (
            "server.answer_memory",
            "\"4095 KiB\"",
            "from 4 MiB to 1024 GiB (one answer of the node",
        ),
        (
            "node.chain_id",
            "\"0123456789abcdef0123456789abcdef\"",
            "1 to 31 printable ASCII",
        ),
        ("node.anchor", "-1", "found the integer -1"),
        (
            "node.timeout",
            "\"8001ms\"",
            "a duration from 100ms to 8s (clients are promised",
        ),
        ("node.timeout", "\"99ms\"", "a duration from 100ms to 8s ("),
        (
            "node.connect_timeout",
            "\"9s\"",
            "a duration from 100ms to 8s (",
        ),
        (
            "node.idle_timeout",
            "\"2h\"",
            "a duration from 100ms to 1h (",
        ),
        ("node.max_idle", "0", "an integer from 1 to 65535 ("),
        ("node.max_connections", "0", "an integer from 1 to 65535 ("),
        (
            "gateway.requests_per_minute",
            "0",
            "from 1 to 1000000000 (zero refuses all clients",
        ),
        (
            "gateway.requests_per_minute",
            "1000000001",
            "an integer from 1 to 1000000000 (",
        ),
        (
            "gateway.max_clients",
            "10000001",
            "an integer from 1 to 10000000 (",
        ),
        (
            "gateway.max_in_flight_per_client",
            "0",
            "an integer from 1 to 1000000 (",
        ),
        (
            "gateway.cache.size",
            "\"1023 KiB\"",
            "a size from 1 MiB to 1024 GiB (",
        ),
        (
            "gateway.cache.max_entries",
            "0",
            "an integer from 16 to 10000000 (",
        ),
        (
            "gateway.cache.watch_interval",
            "\"61s\"",
            "a duration from 100ms to 1m (",
        ),
        (
            "gateway.connections.max",
            "0",
            "an integer from 1 to 1000000 (",
        ),
        (
            "gateway.connections.max_per_client",
            "0",
            "an integer from 1 to 1000000 (",
        ),
        (
            "gateway.connections.header_size",
            "\"1023 B\"",
            "a size from 1 KiB to 256 KiB (",
        ),
        (
            "gateway.connections.header_size",
            "\"257 KiB\"",
            "a size from 1 KiB to 256 KiB (",
        ),
        (
            "gateway.connections.header_timeout",
            "\"0s\"",
            "a duration from 100ms to 1h (",
        ),
        (
            "gateway.connections.body_timeout",
            "\"61m\"",
            "a duration from 100ms to 1h (",
        ),
        (
            "gateway.connections.write_timeout",
            "\"1ms\"",
            "a duration from 100ms to 1h (",
        ),
        (
            "gateway.connections.idle_timeout",
            "\"61m\"",
            "a duration from 100ms to 1h (",
        ),
        (
            "gateway.connections.lifetime",
            "\"25h\"",
            "a duration from 100ms to 1d (",
        ),
    ] {
        refused(path, literal, expected);
    }
}

#[test]
fn a_value_of_another_type_is_named() {
    for (path, literal, expected) in [
        ("server.threads", "\"four\"", "an integer from 0 to 1024"),
        ("server.threads", "1.5", "found the float 1.5"),
        (
            "server.threads",
            "99999999999999999999999999",
            "found the integer 9999999999999999999999",
        ),
        (
            "node.timeout",
            "8",
            "a duration with its unit (ms, s, m, h or d), such as \"8s\", found the i",
        ),
        ("node.timeout", "\"8\"", "such as \"8s\", found \"8\""),
        ("node.timeout", "true", "found the boolean true"),
        (
            "server.answer_memory",
            "4194304",
            "a size with its unit (B, KiB, MiB or GiB), such as",
        ),
        (
            "server.answer_memory",
            "\"4 MB\"",
            "such as \"64 KiB\", found \"4 MB\"",
        ),
        (
            "log.level",
            "3",
            "one of error, warn, info, debug, found the integer 3",
        ),
        (
            "log.level",
            "\"Info\"",
            "found \"Info\"; did you mean info?",
        ),
        (
            "log.level",
            "\"trace\"",
            "one of error, warn, info, debug, found \"trace\"",
        ),
        (
            "log.format",
            "\"jsn\"",
            "one of json, text, found \"jsn\"; did you mean json?",
        ),
        (
            "log.clients",
            "\"none\"",
            "one of full, truncated, found \"none\"",
        ),
        ("log.level", "2026-01-01", "found the date 2026-01-01"),
    ] {
        refused(path, literal, expected);
    }
}

#[test]
fn addresses_that_cannot_be_listened_on_are_refused() {
    let long = format!("\"unix:/{}\"", "a".repeat(107));
    for (literal, expected) in [
        (
            "\"localhost:8080\"",
            "host names are not accepted; write the address",
        ),
        ("\"127.0.0.1\"", "the port is missing"),
        ("\"::1\"", "the port is missing"),
        (
            "\":8080\"",
            "the address is missing; 0.0.0.0 and [::] mean all addresses",
        ),
        ("\"127.0.0.1:65536\"", "the port is not 0 to 65535"),
        ("\"8080\"", "it is neither an address nor a socket"),
        (
            "8080",
            "expected address:port or unix:/absolute/path, found the integer 8080",
        ),
        (
            "\"unix:run/x.sock\"",
            "the path of a socket must be absolute and name a file",
        ),
        (
            "\"unix:/run/\"",
            "the path of a socket must be absolute and name a file",
        ),
        (
            "\"unix:/run/\\u0000\"",
            "the path of a socket must be absolute and name a file",
        ),
        (&long, "the path of a socket has at most 107 bytes, not 108"),
    ] {
        refused("gateway.listen", literal, expected);
    }
}

#[test]
fn the_admin_surface_is_for_this_machine() {
    for literal in ["\"0.0.0.0:8083\"", "\"[::]:8083\"", "\"10.0.0.1:8083\""] {
        refused(
            "admin.listen",
            literal,
            "expected a loopback address or a Unix socket",
        );
    }
}

#[test]
fn two_surfaces_do_not_share_an_address() {
    let both = |gateway: &str, admin: &str| {
        let node = "[node]\nurl = \"http://node\"";
        parse(&format!(
            "{node}\n[gateway]\nlisten = \"{gateway}\"\n[admin]\nlisten = \"{admin}\""
        ))
    };
    for (gateway, admin, free) in [
        ("127.0.0.1:8080", "127.0.0.1:8080", false),
        ("0.0.0.0:8080", "127.0.0.1:8080", false),
        ("[::]:8080", "127.0.0.1:8080", false),
        ("[::]:8080", "[::1]:8080", false),
        ("unix:/run/a", "unix:/run/a", false),
        ("0.0.0.0:8080", "[::1]:8080", true),
        ("127.0.0.1:8080", "127.0.0.2:8080", true),
        ("127.0.0.1:8080", "127.0.0.1:8081", true),
        ("127.0.0.1:0", "127.0.0.1:0", true),
        ("unix:/run/a", "unix:/run/b", true),
    ] {
        let found = messages(both(gateway, admin));
        assert_eq!(found.is_empty(), free, "{gateway} and {admin}: {found:?}");
        for message in found {
            assert!(
                message.starts_with("line 6, column 10: admin.listen: "),
                "{message}"
            );
            assert!(
                message.contains("gateway.listen"),
                "both keys are named: {message}"
            );
        }
    }
    let found = messages(parse(&with("gateway.listen", "\"127.0.0.1:8083\"")));
    assert_eq!(found.len(), 1, "a default counts as well: {found:?}");
}

#[test]
fn a_full_cache_leaves_room_for_an_answer() {
    let with = |memory: &str, size: &str, enabled: bool| {
        let server = format!("[server]\nanswer_memory = \"{memory}\"\n");
        let cache = format!("[gateway.cache]\nsize = \"{size}\"\nenabled = {enabled}\n");
        messages(parse(&format!("{server}{LEAST}{cache}")))
    };
    for (memory, size, enabled, fits) in [
        ("256 MiB", "252 MiB", true, true),
        ("256 MiB", "253 MiB", true, false),
        ("8 MiB", "4 MiB", true, true),
        ("4 MiB", "1 MiB", true, false),
        ("4 MiB", "64 MiB", false, true),
    ] {
        let found = with(memory, size, enabled);
        assert_eq!(found.is_empty(), fits, "{size} of {memory}: {found:?}");
        for message in found {
            assert!(
                message.starts_with("line 8, column 8: gateway.cache.size: "),
                "{message}"
            );
            assert!(
                message.contains("server.answer_memory"),
                "both keys are named: {message}"
            );
        }
    }
    let text = format!("[server]\nanswer_memory = \"16 MiB\"\n{LEAST}");
    assert_eq!(messages(parse(&text)).len(), 1, "a default counts as well");
}

#[test]
fn a_node_url_is_split_into_parts() {
    for (text, host, port, path, authority) in [
        (
            "http://127.0.0.1:5050/rpc",
            "127.0.0.1",
            5050,
            "/rpc",
            "127.0.0.1:5050",
        ),
        (
            "HTTP://Node.Example",
            "node.example",
            80,
            "/",
            "node.example",
        ),
        ("http://node:80/v0_8/", "node", 80, "/v0_8/", "node"),
        ("http://[::1]:5050", "::1", 5050, "/", "[::1]:5050"),
        ("http://[0:0::1]/a@b", "::1", 80, "/a@b", "[::1]"),
        (
            "http://node_1.svc.local:1",
            "node_1.svc.local",
            1,
            "/",
            "node_1.svc.local:1",
        ),
    ] {
        let config = parse(&with("node.url", &format!("\"{text}\""))).unwrap();
        let url = config.node.url.first();
        let found = (
            url.host.as_str(),
            url.port,
            url.path.as_str(),
            url.authority.as_str(),
        );
        assert_eq!(found, (host, port, path, authority), "{text}");
        assert_eq!(
            url.to_string(),
            format!("http://{authority}{path}"),
            "{text} shown"
        );
    }
    let config = parse(&with("node.url", "[\"http://b\", \"http://a\"]")).unwrap();
    assert_eq!(config.node.url.len(), 2);
    assert_eq!(config.node.url.first().host, "b", "the order of the file");
}

#[test]
fn a_node_url_is_shown_without_keys() {
    for (text, shown) in [
        ("http://node:5050/rpc", "http://node:5050/rpc"),
        ("http://node/rpc/v0_10", "http://node/rpc/v0_10"),
        (
            "http://node/starknet/version/rpc/v0.9",
            "http://node/starknet/version/rpc/v0.9",
        ),
        ("http://node", "http://node/"),
        ("http://node/v3/0123456789abcdef", "http://node/…"),
        ("http://node/starknet/version/rpc/v0_9/Key", "http://node/…"),
        ("http://node/12345678/rpc", "http://node/…"),
        ("http://node/v1234567", "http://node/…"),
        ("HTTPS://Node.Example:443/rpc", "https://node.example/rpc"),
        (
            "https://node.example:80/v3/0123456789abcdef",
            "https://node.example:80/…",
        ),
    ] {
        let config = parse(&with("node.url", &format!("\"{text}\""))).unwrap();
        assert_eq!(config.node.url.first().shown(), shown);
    }
}

#[test]
fn a_node_url_with_anything_else_is_refused() {
    let nine: Vec<_> = (1..=9).map(|n| format!("\"http://node{n}\"")).collect();
    let nine = format!("[{}]", nine.join(", "));
    for (literal, expected) in [
        ("\"ws://node\"", "only http:// and https:// are supported"),
        (
            "\"node:5050\"",
            "it does not start with http:// or https://",
        ),
        ("\"http://\"", "the host is missing"),
        ("\"http://:80\"", "the host is missing"),
        ("\"http://node:0\"", "the port is not 1 to 65535"),
        ("\"http://node:65536\"", "the port is not 1 to 65535"),
        ("\"http://node:\"", "the port is not 1 to 65535"),
        ("\"http://node:+1\"", "the port is not 1 to 65535"),
        (
            "\"http://node?x=1\"",
            "a query or a fragment is not accepted",
        ),
        (
            "\"http://node/#x\"",
            "a query or a fragment is not accepted",
        ),
        ("\"http://a b\"", "the host is not a valid name"),
        ("\"http://a..b\"", "the host is not a valid name"),
        ("\"http://127.1\"", "the host is not a valid IPv4 address"),
        ("\"http://[::1\"", "the host is not a valid name"),
        ("\"http://[::x]\"", "the host is not a valid IPv6 address"),
        (
            "\"http://node/a b\"",
            "the path contains characters that must be percent-encoded",
        ),
        (
            "\"http://node/é\"",
            "the path contains characters that must be percent-encoded",
        ),
        (
            "[]",
            "expected 1 to 8 items (one deadline leaves no time for more), found 0",
        ),
        (
            &nine,
            "expected 1 to 8 items (one deadline leaves no time for more), found 9",
        ),
        (
            "[\"http://a\", \"http://A:80/\"]",
            "expected each item once, found \"http://A:80/\" twice",
        ),
        (
            "5",
            "expected a URL such as \"http://127.0.0.1:5050/rpc\", found the integer 5",
        ),
    ] {
        refused("node.url", literal, expected);
    }
}

#[test]
fn a_secret_in_a_url_is_not_shown() {
    for url in [
        "http://user:hunter2@node/rpc",
        "http://user:hun/hunter2@node",
        "wss://node.example/v1/hunter2",
        "http://node/?key=hunter2",
        "user:hunter2@node",
        "node/hunter2",
    ] {
        let found = messages(parse(&with("node.url", &format!("\"{url}\""))));
        assert_eq!(found.len(), 1, "{url} is refused: {found:?}");
        assert!(!found[0].contains("hunter2"), "{found:?}");
    }
}

#[test]
fn trusted_proxies_are_networks() {
    let literal = "[\"10.0.0.0/8\", \"192.0.2.7\", \"2001:db8::/32\", \"::1\"]";
    let gateway = parse(&with("gateway.trusted_proxies", literal))
        .unwrap()
        .gateway
        .unwrap();
    let shown: Vec<_> = gateway
        .live
        .clients
        .trusted_proxies
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        shown,
        ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32", "::1/128"]
    );
    for (literal, expected) in [
        (
            "\"10.0.0.1/8\"",
            "bits are set after the prefix; write 10.0.0.0/8",
        ),
        ("\"10.0.0.0/33\"", "or an IP address, found \"10.0.0.0/33\""),
        ("\"proxy.local\"", "or an IP address, found \"proxy.local\""),
        (
            "[\"127.0.0.1\", \"127.0.0.1/32\"]",
            "each item once, found \"127.0.0.1/32\" twice",
        ),
        ("[1]", "found the integer 1"),
    ] {
        refused("gateway.trusted_proxies", literal, expected);
    }
}

#[test]
fn operations_can_only_be_narrowed() {
    for (literal, expected) in [
        (
            "[\"mint-cards\"]",
            "the name of an operation, found \"mint-cards\"; did you mean mint-card?",
        ),
        ("[\"rpc\"]", "found \"rpc\"; they are register,"),
        (
            "[\"register\", \"register\"]",
            "expected each item once, found \"register\" twice",
        ),
        ("[7]", "the name of an operation, found the integer 7"),
    ] {
        refused("relay.operations", literal, expected);
    }
    let none = parse(&with("relay.operations", "[]")).unwrap();
    assert_eq!(none.relay.unwrap().live.operations, []);
}

#[test]
fn methods_can_only_be_narrowed() {
    for (literal, expected) in [
        (
            "[]",
            "at least 1 item (leave [gateway] out to switch it off), found 0",
        ),
        (
            "[\"starknet_call\", \"starknet_call\"]",
            "each item once, found \"starknet_call\" twice",
        ),
        (
            "[\"getNonce\"]",
            "found \"getNonce\"; did you mean starknet_getNonce?",
        ),
        (
            "[\"starknet_addInvokeTransaction\"]",
            "they are starknet_specVersion, starknet_chainId",
        ),
        (
            "[\"starknet_getStorageAt\"]",
            "they are starknet_specVersion, starknet_chainId",
        ),
        ("[7]", "the name of a read method, found the integer 7"),
    ] {
        refused("gateway.methods", literal, expected);
    }
}

#[test]
fn an_origin_is_written_as_browsers_send_it() {
    let list = "[\"https://app.example\", \"http://localhost:3000\", \"http://[::1]:3000\", \
                \"capacitor://localhost\"]";
    let gateway = parse(&with("gateway.cors_origins", list))
        .unwrap()
        .gateway
        .unwrap();
    assert!(matches!(gateway.live.cors_origins, CorsOrigins::List(list) if list.len() == 4));
    for (literal, expected) in [
        (
            "[\"*\", \"https://a.example\"]",
            "\"*\" alone or a list of origins, found both",
        ),
        ("[\"*\", \"*\"]", "each item once, found \"*\" twice"),
        (
            "[\"https://a\", \"https://a\"]",
            "each item once, found \"https://a\" twice",
        ),
        (
            "\"https://App.example\"",
            "a browser sends https://app.example",
        ),
        (
            "\"HTTPS://app.example\"",
            "a browser sends https://app.example",
        ),
        (
            "\"https://app.example/\"",
            "a browser sends https://app.example",
        ),
        (
            "\"https://app.example/path\"",
            "a browser sends https://app.example",
        ),
        (
            "\"https://app.example:443\"",
            "a browser sends https://app.example",
        ),
        ("\"https://*.example\"", "the host is not a valid name"),
        ("\"https://\"", "the host is missing"),
        ("\"://app.example\"", "the scheme is not valid"),
        ("\"app.example\"", "it has no scheme"),
        ("\"null\"", "it has no scheme"),
        (
            "5",
            "expected \"*\" or an origin such as \"https://app.example\", found the integer 5",
        ),
    ] {
        refused("gateway.cors_origins", literal, expected);
    }
}

/// One key set wrongly: one error, with the key, its place and the expected words.
fn refused(path: &str, literal: &str, expected: &str) {
    let found = messages(parse(&with(path, literal)));
    assert_eq!(
        found.len(),
        1,
        "{path} = {literal} is one mistake: {found:?}"
    );
    let line = found[0].starts_with("line ");
    assert!(
        line && found[0].contains(&format!(": {path}: ")),
        "{found:?} has its place and key"
    );
    assert!(
        found[0].contains(expected),
        "{found:?} should have {expected:?}"
    );
}

#[test]
fn a_duration_is_shown_as_it_was_read() {
    for (text, millis, shown) in [
        ("500ms", 500, "500ms"),
        ("8s", 8_000, "8s"),
        ("8 s", 8_000, "8s"),
        ("90s", 90_000, "90s"),
        ("120s", 120_000, "2m"),
        ("2m", 120_000, "2m"),
        ("1h", 3_600_000, "1h"),
        ("0s", 0, "0s"),
        ("0h", 0, "0s"),
    ] {
        let read = parse(&with("server.drain_delay", &format!("\"{text}\""))).unwrap();
        let read = read.server.drain_delay;
        assert_eq!(read, Duration::from_millis(millis), "{text} read");
        assert_eq!(Readable(read).to_string(), shown, "{text} shown");
    }
    assert_eq!(Readable(Duration::from_micros(1_500)).to_string(), "1.5ms");
    assert_eq!(Readable(Duration::from_nanos(1)).to_string(), "1ns");
}

#[test]
fn a_size_is_shown_as_it_was_read() {
    for (key, text, bytes, shown) in [
        (
            "gateway.connections.header_size",
            "64 KiB",
            65_536,
            "64 KiB",
        ),
        ("gateway.connections.header_size", "64KiB", 65_536, "64 KiB"),
        ("gateway.connections.header_size", "1024 B", 1_024, "1 KiB"),
        ("server.answer_memory", "72 MiB", 72 << 20, "72 MiB"),
        ("server.answer_memory", "1 GiB", 1 << 30, "1 GiB"),
    ] {
        let config = parse(&with(key, &format!("\"{text}\""))).unwrap();
        let header_size = config.gateway.unwrap().connections.header_size;
        let of_server = key.starts_with("server.");
        let read = if of_server {
            config.server.answer_memory
        } else {
            header_size
        };
        assert_eq!(read, Size::from_bytes(bytes), "{text} read");
        assert_eq!(read.to_string(), shown, "{text} shown");
    }
    for (bytes, shown) in [(4 << 20, "4 MiB"), (100, "100 B"), (0, "0 B")] {
        assert_eq!(Size::from_bytes(bytes).to_string(), shown);
    }
    // it is read, and then out of range
    for text in ["100 B", "0 MiB"] {
        let expected = "a size from 1 KiB to 256 KiB (";
        refused(
            "gateway.connections.header_size",
            &format!("\"{text}\""),
            expected,
        );
    }
}

#[test]
fn an_amount_is_in_strk_or_fri() {
    let read = |text: &str| {
        let config = parse(&whole("relay.policy.max_fee", &format!("\"{text}\"")));
        config
            .ok()
            .map(|config| config.relay.unwrap().live.policy.max_fee)
    };
    for (text, fri) in [
        ("10 STRK", Some(10_000_000_000_000_000_000)),
        ("0.5STRK", Some(500_000_000_000_000_000)),
        ("0.000000000000000001 STRK", Some(1)),
        ("7 fri", Some(7)),
        ("0.0000000000000000001 STRK", None),
        ("340282366920938463463374607431768211456 fri", None),
        ("340282366920938463464 STRK", None),
        ("7", None),
        ("-1 fri", None),
        ("+1 fri", None),
        (".5 STRK", None),
        ("5. STRK", None),
        ("fri", None),
    ] {
        assert_eq!(read(text).map(Amount::fri), fri, "{text}");
    }
    assert_eq!(read("10 STRK").unwrap().to_string(), "10 STRK");
    assert_eq!(
        read("0.5 STRK").unwrap().to_string(),
        "500000000000000000 fri"
    );
}

#[test]
fn a_number_without_a_known_unit_is_refused() {
    for text in [
        "",
        "8",
        "s",
        "-8s",
        "+8s",
        "1.5s",
        "8 sec",
        "8S",
        " 8s",
        "8s ",
        "8_0s",
        "1h30m",
        "8\ts",
        "18446744073709551616s",
        "18446744073709551615h",
    ] {
        refused(
            "server.drain_delay",
            &format!("{text:?}"),
            "a duration with its unit (ms, s, m,",
        );
    }
    for text in [
        "",
        "64",
        "KiB",
        "64 KB",
        "64 kib",
        "1.5 MiB",
        "64 KiB ",
        "99999999999 GiB",
    ] {
        refused(
            "server.answer_memory",
            &format!("{text:?}"),
            "a size with its unit (B, KiB,",
        );
    }
}

#[test]
fn only_a_near_name_is_suggested() {
    for (word, suggested) in [
        ("jsn", Some("json")),
        ("JSON", Some("json")),
        ("txet", Some("text")),
        ("getClassAt", None),
        ("", None),
        ("x", None),
        // too long to compare
        (&*"j".repeat(100_000), None),
    ] {
        let found = messages(parse(&with("log.format", &format!("\"{word}\""))));
        let hint = found[0]
            .split_once("; did you mean ")
            .map(|(_, hint)| hint.trim_end_matches('?'));
        assert_eq!(hint, suggested, "for {found:?}");
    }
    refused(
        "gateway.methods",
        "\"getclasat\"",
        "did you mean starknet_getClassAt?",
    );
}

#[test]
fn an_empty_budget_is_no_limit() {
    let read = |text: &str, env: &[(&str, &str)]| {
        let relay = with_env(text, env).unwrap().relay.unwrap();
        (
            relay.live.faucet_per_day,
            relay.live.fees_per_day.map(Amount::fri),
        )
    };
    let [drips, fees] = ["relay.faucet_per_day", "relay.fees_per_day"];
    assert_eq!(read(&whole("", ""), &[]), (None, None), "by default");
    assert_eq!(read(&whole(drips, "1_000_000"), &[]).0, Some(1_000_000));
    assert_eq!(
        read(&whole(fees, "\"1 STRK\""), &[]).1,
        Some(10_u128.pow(18))
    );
    let drips = "PORTCULLIS__RELAY__FAUCET_PER_DAY";
    assert_eq!(
        read(&whole("", ""), &[(drips, "7")]).0,
        Some(7),
        "a variable is a text"
    );
    assert_eq!(read(&whole(fees, "\"7 STRK\""), &[(drips, "")]).0, None);
}
