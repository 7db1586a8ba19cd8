//! `[[gateway.clients]]`: tables with limits of some networks, and their mistakes.

use super::{LEAST, messages, parse, with, with_env};

const TABLES: &str = r#"
[[gateway.clients]]
networks = ["203.0.113.0/28", "2001:db8::/48"]
requests_per_minute = 3000
max_in_flight = 512

[[gateway.clients]]
networks = "198.51.100.7"
requests_per_minute = 10
"#;

#[test]
fn tables_and_one_line_are_the_same() {
    let tables = parse(&format!("{LEAST}{TABLES}")).unwrap();
    let line = "[{ networks = [\"203.0.113.0/28\", \"2001:db8::/48\"], \
                requests_per_minute = 3000, max_in_flight = 512 }, \
                { networks = [\"198.51.100.7\"], requests_per_minute = 10 }]";
    let one = parse(&with("gateway.clients", line)).unwrap();
    let variable = with_env(LEAST, &[("PORTCULLIS__GATEWAY__CLIENTS", line)]).unwrap();
    let limits = |config: super::Config| config.gateway.unwrap().live.networks;
    let expected = limits(tables);
    assert_eq!(limits(one), expected);
    assert_eq!(limits(variable), expected);
    let found: Vec<_> = expected
        .iter()
        .map(|of| (of.networks.len(), of.requests_per_minute, of.max_in_flight))
        .collect();
    assert_eq!(found, [(2, Some(3000), Some(512)), (1, Some(10), None)]);
}

#[test]
fn a_single_table_is_a_list_of_one() {
    let text = format!("{LEAST}[gateway.clients]\nnetworks = \"192.0.2.1\"\nmax_in_flight = 1\n");
    let config = parse(&text).unwrap();
    assert_eq!(config.gateway.unwrap().live.networks.len(), 1);
}

#[test]
fn each_mistake_in_a_table_has_its_place() {
    for (table, expected) in [
        (
            "networks = [\"192.0.2.1/24\"]\nrequests_per_minute = 1",
            "line 6, column 13: gateway.clients: networks: expected a network such as \
             \"10.0.0.0/8\" or an IP address, found \"192.0.2.1/24\": bits are set after the \
             prefix; write 192.0.2.0/24",
        ),
        (
            "networks = [\"partner\"]\nrequests_per_minute = 1",
            "networks: expected a network such as \"10.0.0.0/8\" or an IP address",
        ),
        (
            "networks = []\nmax_in_flight = 1",
            "expected at least one network, found none",
        ),
        (
            "requests_per_minute = 9",
            "expected networks, found a table without",
        ),
        (
            "networks = \"192.0.2.1\"",
            "expected requests_per_minute, max_in_flight or both",
        ),
        (
            "networks = \"192.0.2.1\"\nrequests_per_minute = 0",
            "line 7, column 23: gateway.clients: requests_per_minute: expected an integer from 1 \
             to 1000000000",
        ),
        (
            "networks = \"192.0.2.1\"\nmax_in_flight = \"many\"",
            "max_in_flight: expected an integer from 1 to 1000000",
        ),
        (
            "networks = \"192.0.2.1\"\nrequests_per_minut = 9",
            "line 7, column 1: gateway.clients: unknown key requests_per_minut; did you mean \
             requests_per_minute?",
        ),
        (
            "networks = \"192.0.2.1\"\ntoken = 9",
            "unknown key token; an entry has networks, requests_per_minute, max_in_flight",
        ),
    ] {
        let found = messages(parse(&format!("{LEAST}[[gateway.clients]]\n{table}\n")));
        assert_eq!(found.len(), 1, "{table}: {found:?}");
        assert!(found[0].contains(expected), "{found:?}, not {expected:?}");
    }
}

#[test]
fn other_values_are_no_tables() {
    let found = messages(parse(&with("gateway.clients", "[\"192.0.2.1\", 5]")));
    let form = "expected a table with networks, requests_per_minute and max_in_flight, found";
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|text| text.contains(form)), "{found:?}");
}

#[test]
fn a_network_is_in_one_table_only() {
    for (networks, expected) in [
        (
            "[\"198.51.100.7\", \"192.0.2.0/24\"]",
            "198.51.100.7/32 is in two entries; remove one",
        ),
        ("\"::ffff:198.51.100.7\"", "is in two entries; remove one"),
    ] {
        let third = format!("[[gateway.clients]]\nnetworks = {networks}\nmax_in_flight = 1\n");
        let found = messages(parse(&format!("{LEAST}{TABLES}{third}")));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
    let inside = "[[gateway.clients]]\nnetworks = \"203.0.113.9\"\nmax_in_flight = 1\n";
    let config = parse(&format!("{LEAST}{TABLES}{inside}")).unwrap();
    assert_eq!(config.warnings, [], "networks nest");
}

#[test]
fn limits_of_a_blocked_network_are_a_warning() {
    let keys = "exempt = [\"198.51.100.9\", \"192.0.2.1\"]\nblocked = \"198.51.100.0/24\"\n";
    let text = LEAST.replace("[gateway]\n", &format!("[gateway]\n{keys}"));
    let config = parse(&format!("{text}{TABLES}")).unwrap();
    let found: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    for (text, network) in found.iter().zip(["198.51.100.9/32", "198.51.100.7/32"]) {
        let expected = format!("{network} has no effect: gateway.blocked has 198.51.100.0/24");
        assert!(text.ends_with(&expected), "{found:?}");
    }
}
