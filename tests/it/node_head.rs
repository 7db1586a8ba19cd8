//! Node responses that are wrong before their body: status, framing, interim responses, endless
//! heads.
//!
//! Each fault is one row; its number travels to the node as a block number, so that one gateway
//! meets them all. After each fault a plain request must get its own correct response: nothing of a
//! broken response may remain.

use crate::support::check::{assert_one_of, assert_result, each};
use crate::support::edge::Edge;
use crate::support::node::{Act, Call, Node};
use crate::support::request::{Request, rpc};
use crate::support::script::{ANSWER_CAP, echo, envelope, http, send, send_and_close, sized};

/// The name of a fault, its script, and the reasons that may be reported for it.
pub(crate) type Fault = (&'static str, fn(&Call) -> Vec<Act>, &'static [&'static str]);

/// The row that a request is about; the node behaves correctly beyond the last row.
pub(crate) fn row(call: &Call) -> usize {
    let number = call.json()["params"]["block_id"]["block_number"].as_u64();
    usize::try_from(number.expect("these tests ask by block number")).expect("a small number")
}

/// The request for a row.
pub(crate) fn ask_about(row: usize, id: &str) -> Request {
    let params = format!("[{{\"block_number\":{row}}}]");
    Request::post(rpc(id, "starknet_getBlockWithTxHashes", &params))
}

/// Asserts that each fault is reported once, as one of its reasons, and leaves nothing behind.
pub(crate) fn assert_faults(faults: &'static [Fault], keys: &[(&str, &str)]) {
    let node = Node::start(|call| match faults.get(row(call)) {
        Some((_, fault, _)) => fault(call),
        None => echo(call),
    });
    let edge = Edge::with(&node, keys);
    each(faults.iter().enumerate(), |(row, (what, _, reasons))| {
        let before = node.calls().len();
        let mut client = edge.client();
        let failed = client.ask(&ask_about(row, "\"mine\""));
        assert_one_of(&failed, reasons, "\"mine\"", what);
        let sane = 1000 + row;
        let expected = format!(r#"{{"block_id":{{"block_number":{sane}}}}}"#);
        let next = edge.ask(&ask_about(sane, "\"next\""));
        assert_result(
            &next,
            "\"next\"",
            &expected,
            &format!("the next request after: {what}"),
        );
        let calls = node.calls().len() - before;
        assert_eq!(
            calls, 2,
            "{what}: the node is queried once for each request, never again"
        );
        if failed.announces_close() {
            client.ends(what);
        } else {
            let again = client.ask(&ask_about(sane, "8"));
            assert_result(
                &again,
                "8",
                &expected,
                &format!("the same connection after: {what}"),
            );
        }
    });
}

const REDIRECT: &[&str] = &["upstream_redirect"];
const STATUS: &[&str] = &["upstream_status"];
const INVALID: &[&str] = &["upstream_invalid"];
const STATUS_OR_INVALID: &[&str] = &["upstream_status", "upstream_invalid"];
const TOO_MUCH: &[&str] = &["upstream_invalid", "upstream_oversized"];

/// A correct body under a wrong status, with a `Location`.
fn status(call: &Call, status: &str) -> Vec<Act> {
    let location = [
        "Content-Type: application/json",
        "Location: /a-word-of-the-node",
    ];
    send(sized(
        status,
        &location,
        envelope(call, "\"a-word-of-the-node\""),
    ))
}

#[test]
fn redirects_are_rejected_and_not_followed() {
    const FAULTS: &[Fault] = &[
        ("300", |call| status(call, "300 Multiple Choices"), REDIRECT),
        (
            "301",
            |call| status(call, "301 Moved Permanently"),
            REDIRECT,
        ),
        ("302", |call| status(call, "302 Found"), REDIRECT),
        ("303", |call| status(call, "303 See Other"), REDIRECT),
        ("305", |call| status(call, "305 Use Proxy"), REDIRECT),
        (
            "307",
            |call| status(call, "307 Temporary Redirect"),
            REDIRECT,
        ),
        (
            "308",
            |call| status(call, "308 Permanent Redirect"),
            REDIRECT,
        ),
        (
            "304",
            |_| send(http("304 Not Modified", &["ETag: \"a\""], "")),
            REDIRECT,
        ),
        (
            "304 with a length, which has no body all the same",
            |_| send(http("304 Not Modified", &["Content-Length: 40"], "")),
            REDIRECT,
        ),
    ];
    assert_faults(FAULTS, &[]);
}

#[test]
fn any_status_but_200_is_an_error() {
    const FAULTS: &[Fault] = &[
        ("201", |call| status(call, "201 Created"), STATUS),
        ("202", |call| status(call, "202 Accepted"), STATUS),
        (
            "203",
            |call| status(call, "203 Non-Authoritative Information"),
            STATUS,
        ),
        ("204", |_| send(http("204 No Content", &[], "")), STATUS),
        (
            "205",
            |_| send(http("205 Reset Content", &["Content-Length: 0"], "")),
            STATUS,
        ),
        ("206", |call| status(call, "206 Partial Content"), STATUS),
        ("400", |call| status(call, "400 Bad Request"), STATUS),
        ("401", |call| status(call, "401 Unauthorized"), STATUS),
        ("403", |call| status(call, "403 Forbidden"), STATUS),
        ("404", |call| status(call, "404 Not Found"), STATUS),
        (
            "404 without a body",
            |_| send(sized("404 Not Found", &[], "")),
            STATUS,
        ),
        ("413", |call| status(call, "413 Content Too Large"), STATUS),
        ("429", |call| status(call, "429 Too Many Requests"), STATUS),
        (
            "500",
            |call| status(call, "500 Internal Server Error"),
            STATUS,
        ),
        ("502", |call| status(call, "502 Bad Gateway"), STATUS),
        (
            "503",
            |call| status(call, "503 Service Unavailable"),
            STATUS,
        ),
        ("504", |call| status(call, "504 Gateway Timeout"), STATUS),
        ("599", |call| status(call, "599 Whatever"), STATUS),
        (
            "999",
            |call| status(call, "999 Whatever"),
            STATUS_OR_INVALID,
        ),
        (
            "101 and silence",
            |_| {
                let lines = ["Upgrade: websocket", "Connection: Upgrade"];
                let switch = http("101 Switching Protocols", &lines, "");
                vec![Act::Send(switch), Act::Hang]
            },
            STATUS_OR_INVALID,
        ),
        (
            "101 and a right answer",
            |call| {
                let lines = ["Upgrade: websocket", "Connection: Upgrade"];
                let mut switch = http("101 Switching Protocols", &lines, "");
                switch.extend(sized(
                    "200 OK",
                    &[],
                    envelope(call, "\"a-word-of-the-node\""),
                ));
                send(switch)
            },
            STATUS_OR_INVALID,
        ),
    ];
    assert_faults(FAULTS, &[]);
}

/// A correct body after a head of exactly these lines.
fn under(call: &Call, lines: &[&str]) -> Vec<Act> {
    send_and_close(http(
        "200 OK",
        lines,
        envelope(call, "\"a-word-of-the-node\""),
    ))
}

/// A correct body after this status line.
fn after_line(call: &Call, line: &str) -> Vec<Act> {
    let body = envelope(call, "\"a-word-of-the-node\"");
    send_and_close(format!(
        "{line}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

#[test]
fn a_malformed_response_head_is_invalid() {
    const FAULTS: &[Fault] = &[
        (
            "half a status line",
            |_| send_and_close("HTTP/1.1 20"),
            INVALID,
        ),
        (
            "half a head",
            |_| send_and_close("HTTP/1.1 200 OK\r\nContent-Le"),
            INVALID,
        ),
        (
            "a head without its end",
            |_| send_and_close("HTTP/1.1 200 OK\r\nA: b\r\n"),
            INVALID,
        ),
        (
            "HTML without a head",
            |_| send_and_close("<html>no</html>\r\n\r\n"),
            INVALID,
        ),
        (
            "JSON without a head",
            |call| send_and_close(envelope(call, "1")),
            INVALID,
        ),
        (
            "another protocol",
            |_| send_and_close("SSH-2.0-OpenSSH_9.9\r\n"),
            INVALID,
        ),
        (
            "binary noise",
            |_| send_and_close([0_u8, 1, 2, 255, 254, 13, 10, 13, 10]),
            INVALID,
        ),
        (
            "an unknown version",
            |call| after_line(call, "HTTP/3.7 200 OK"),
            INVALID,
        ),
        ("ICY", |call| after_line(call, "ICY 200 OK"), INVALID),
        (
            "a status of two digits",
            |call| after_line(call, "HTTP/1.1 20 OK"),
            INVALID,
        ),
        (
            "a status of four digits",
            |call| after_line(call, "HTTP/1.1 2000 OK"),
            INVALID,
        ),
        (
            "a status in words",
            |call| after_line(call, "HTTP/1.1 OK"),
            INVALID,
        ),
        (
            "a header without a colon",
            |_| send_and_close("HTTP/1.1 200 OK\r\nContent-Length 5\r\n\r\n12345"),
            INVALID,
        ),
    ];
    assert_faults(FAULTS, &[]);
}

#[test]
fn conflicting_response_framing_is_invalid() {
    const FAULTS: &[Fault] = &[
        (
            "two lengths that differ",
            |call| under(call, &["Content-Length: 10", "Content-Length: 66"]),
            INVALID,
        ),
        (
            "a list of lengths",
            |call| under(call, &["Content-Length: 10, 66"]),
            INVALID,
        ),
        (
            "a signed length",
            |call| under(call, &["Content-Length: +66"]),
            INVALID,
        ),
        (
            "a negative length",
            |call| under(call, &["Content-Length: -1"]),
            INVALID,
        ),
        (
            "a hexadecimal length",
            |call| under(call, &["Content-Length: 0x42"]),
            INVALID,
        ),
        (
            "a length in words",
            |call| under(call, &["Content-Length: many"]),
            INVALID,
        ),
        (
            "a length above 64 bits",
            |call| under(call, &["Content-Length: 18446744073709551682"]),
            TOO_MUCH,
        ),
        (
            "length and chunks",
            |call| under(call, &["Content-Length: 66", "Transfer-Encoding: chunked"]),
            INVALID,
        ),
        (
            "an unknown coding",
            |call| under(call, &["Transfer-Encoding: gzip"]),
            INVALID,
        ),
        (
            "a coding that is not chunked in the end",
            |call| under(call, &["Transfer-Encoding: chunked, gzip"]),
            INVALID,
        ),
        (
            "a coding around chunks",
            |call| under(call, &["Transfer-Encoding: gzip, chunked"]),
            INVALID,
        ),
    ];
    assert_faults(FAULTS, &[]);
}

#[test]
fn a_flood_of_headers_is_invalid() {
    const FAULTS: &[Fault] = &[
        (
            "headers without end",
            |_| {
                vec![
                    Act::Send("HTTP/1.1 200 OK\r\n".into()),
                    flood("A: a-word-of-the-node\r\n"),
                ]
            },
            TOO_MUCH,
        ),
        (
            "one header without end",
            |_| vec![Act::Send("HTTP/1.1 200 OK\r\nA: ".into()), flood("a")],
            TOO_MUCH,
        ),
        (
            "a status line without end",
            |_| vec![flood("HTTP/1.1 200 ")],
            TOO_MUCH,
        ),
        ("line breaks without end", |_| vec![flood("\r\n")], TOO_MUCH),
        (
            "a complete head of 8 MiB",
            |call| {
                let fill = format!("X-Fill: {}", "a".repeat(2 * ANSWER_CAP));
                send_and_close(sized("200 OK", &[&fill], envelope(call, "1")))
            },
            TOO_MUCH,
        ),
        (
            "100 without end",
            |_| vec![flood("HTTP/1.1 100 Continue\r\n\r\n")],
            INVALID,
        ),
        (
            "103 with hints without end",
            |_| {
                vec![flood(
                    "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n",
                )]
            },
            INVALID,
        ),
    ];
    assert_faults(FAULTS, &[]);
}

fn flood(text: &str) -> Act {
    Act::Flood(text.repeat(1 + 4096 / text.len()).into_bytes())
}

#[test]
fn interim_answers_before_the_answer_are_skipped() {
    let interim: [&[&str]; 4] = [
        &["100 Continue"],
        &["102 Processing"],
        &["103 Early Hints"],
        &["100 A", "102 B", "103 C"],
    ];
    let node = Node::start(move |call| {
        let mut acts: Vec<Act> = Vec::new();
        for status in interim[row(call)] {
            acts.push(Act::Send(http(status, &["X-Node: a-word-of-the-node"], "")));
        }
        acts.extend(echo(call));
        acts
    });
    let edge = Edge::start(&node);
    for (row, statuses) in interim.iter().enumerate() {
        let expected = format!(r#"{{"block_id":{{"block_number":{row}}}}}"#);
        let response = edge.ask(&ask_about(row, "7"));
        assert_result(
            &response,
            "7",
            &expected,
            &format!("{statuses:?} and then an answer"),
        );
    }
}
