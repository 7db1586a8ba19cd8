//! Malformed heads and bodies, and request smuggling.
//!
//! Each malformed request is followed by a well-formed one, the contraband. It must never reach the
//! node or get a response: where the end of a request is ambiguous, the connection closes.

use crate::support::check::{assert_common, assert_one_of, assert_result, each};
use crate::support::client::Broken;
use crate::support::edge::Edge;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::response::Response;
use crate::support::script::{RESULT, good};

/// Short deadlines: a request that is read as incomplete costs a second, not ten.
const BRISK: [(&str, &str); 3] = [
    ("gateway.connections.header_timeout", "\"1s\""),
    ("gateway.connections.body_timeout", "\"1s\""),
    ("gateway.connections.proxy_idle_timeout", "\"1s\""),
];

const FRAMING: &[&str] = &["conflicting_framing"];
const MALFORMED: &[&str] = &["invalid_request"];
const EITHER: &[&str] = &["conflicting_framing", "invalid_request"];

/// A whole request that proves smuggling if it gets a response or reaches the node.
fn contraband() -> Vec<u8> {
    Request::post(rpc("\"smuggled\"", "starknet_specVersion", "[]")).bytes()
}

/// Sends all bytes, and reads responses until the connection ends.
fn converse(edge: &Edge, bytes: &[u8]) -> Vec<Response> {
    let mut client = edge.client();
    client.send(bytes);
    let mut responses = Vec::new();
    loop {
        match client.try_response() {
            Ok(response) => responses.push(response),
            Err(Broken::Ended(rest) | Broken::Reset(rest)) if rest.is_empty() => return responses,
            Err(broken) => panic!("neither an answer nor the end: {broken:?} to {bytes:?}"),
        }
    }
}

/// Asserts that each case gets one refusal and a close, and that nothing is smuggled, whether the
/// contraband is sent with the malformed request or after its refusal.
fn assert_refused_and_ended(cases: &[(&str, Vec<u8>, &[&str])]) {
    let node = Node::start(good);
    let edge = Edge::with(&node, &BRISK);
    let apart = cases.iter().map(|case| (case, false));
    each(
        apart.chain(cases.iter().map(|case| (case, true))),
        |(case, at_once)| {
            let (what, bytes, reasons) = case;
            let mut client = edge.client();
            if at_once {
                client.send([bytes.as_slice(), &contraband()].concat());
            } else {
                client.send(bytes);
            }
            let response = client.response();
            assert_one_of(&response, reasons, "null", what);
            assert!(
                response.announces_close(),
                "{what}: a refusal that ends the connection says so"
            );
            if !at_once {
                client.send(contraband());
            }
            client.ends(&format!("{what}: nothing comes after the refusal"));
        },
    );
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

/// A request with exactly these framing header lines.
fn framed(lines: &[(&str, &str)], body: &str) -> Vec<u8> {
    let bare = Request::post("").without("Content-Length");
    let request = lines
        .iter()
        .fold(bare, |own, (name, value)| own.with(name, value));
    [request.head(), body.as_bytes().to_vec()].concat()
}

/// [`QUESTION`] as one chunk, followed by the last chunk.
fn one_chunk() -> String {
    format!("{:x}\r\n{QUESTION}\r\n0\r\n\r\n", QUESTION.len())
}

#[test]
fn length_and_chunks_together_are_conflicting() {
    let all = one_chunk().len().to_string();
    let question = QUESTION.len().to_string();
    let mut cases: Vec<(&str, Vec<u8>, &[&str])> = Vec::new();
    for (what, length) in [
        ("the length of the chunks", all.as_str()),
        ("the length of the body", question.as_str()),
        ("length 0", "0"),
        ("length 5", "5"),
        ("a length far beyond", "60000"),
    ] {
        let (chunks, length) = (("Transfer-Encoding", "chunked"), ("Content-Length", length));
        cases.push((what, framed(&[length, chunks], &one_chunk()), FRAMING));
        cases.push((what, framed(&[chunks, length], &one_chunk()), FRAMING));
        cases.push((what, framed(&[length, chunks], QUESTION), FRAMING));
    }
    assert_refused_and_ended(&cases);
}

#[test]
fn requests_without_a_body_have_one_framing_too() {
    let lines = "Host: edge.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked";
    let cases = ["GET /healthz", "HEAD /healthz", "OPTIONS /rpc"].map(|line| {
        let head = format!("{line} HTTP/1.1\r\n{lines}\r\n\r\n0\r\n\r\n");
        (line, head.into_bytes())
    });
    let node = Node::start(good);
    let edge = Edge::with(&node, &BRISK);
    each(cases, |(what, bytes)| {
        let mut client = edge.client();
        client.send(&bytes);
        let response = if what.starts_with("HEAD") {
            client.response_to_head()
        } else {
            client.response()
        };
        assert_eq!(response.status, 400, "{what}");
        assert!(response.announces_close(), "{what}");
        client.ends(what);
    });
}

#[test]
fn an_ambiguous_length_is_conflicting() {
    let length = QUESTION.len().to_string();
    let lengths: [&[&str]; 18] = [
        &[&length, &length],
        &[&format!("{length}, {length}")],
        &["5", &length],
        &[&length, "5"],
        &[&length, "0"],
        &[&format!("{length}, 5")],
        &[&format!("{length},")],
        &[&format!("{length} 5")],
        &[&format!("+{length}")],
        &[&format!("-{length}")],
        &[&format!("0x{:x}", QUESTION.len())],
        &[&format!("{length}.0")],
        &[&format!("{length}e0")],
        &[&format!("{length}_0")],
        &[&format!("\"{length}\"")],
        &["", &length],
        &[""],
        &["many"],
    ];
    let cases: Vec<_> = lengths
        .iter()
        .map(|lengths| {
            let lines: Vec<_> = lengths
                .iter()
                .map(|length| ("Content-Length", *length))
                .collect();
            (lengths[0], framed(&lines, QUESTION), EITHER)
        })
        .collect();
    assert_refused_and_ended(&cases);
}

#[test]
fn a_length_above_64_bits_is_refused() {
    let reasons: &[&str] = &["conflicting_framing", "invalid_request", "body_too_large"];
    let body = framed(&[("Content-Length", "18446744073709551688")], QUESTION);
    assert_refused_and_ended(&[("2^64 + 72", body, reasons)]);
}

#[test]
fn a_transfer_coding_other_than_chunked_is_conflicting() {
    let codings: [&[&str]; 16] = [
        &["xchunked"],
        &["chunkedx"],
        &["identity"],
        &["gzip"],
        &["gzip, chunked"],
        &["chunked, gzip"],
        &["chunked, identity"],
        &["chunked, chunked"],
        &["chunked", "chunked"],
        &["chunked", "identity"],
        &["identity", "chunked"],
        &["chunked;q=1"],
        &["\"chunked\""],
        &["chunked,"],
        &[", chunked"],
        &["chun ked"],
    ];
    let cases: Vec<_> = codings
        .iter()
        .map(|codings| {
            let lines: Vec<_> = codings
                .iter()
                .map(|coding| ("Transfer-Encoding", *coding))
                .collect();
            (codings[0], framed(&lines, &one_chunk()), EITHER)
        })
        .collect();
    assert_refused_and_ended(&cases);
}

#[test]
fn chunks_in_http_1_0_are_conflicting() {
    let request = Request::post_chunked(QUESTION, 100).line("POST /rpc HTTP/1.0");
    let persistent = request.clone().with("Connection", "keep-alive");
    assert_refused_and_ended(&[
        ("HTTP/1.0 with chunks", request.bytes(), EITHER),
        (
            "HTTP/1.0 with chunks, persistent",
            persistent.bytes(),
            EITHER,
        ),
    ]);
}

#[test]
fn chunks_that_are_malformed_end_the_connection() {
    let length = QUESTION.len();
    let bodies: [(&str, String); 14] = [
        ("no size", format!("\r\n{QUESTION}\r\n0\r\n\r\n")),
        ("a size in words", format!("all\r\n{QUESTION}\r\n0\r\n\r\n")),
        ("a negative size", format!("-1\r\n{QUESTION}\r\n0\r\n\r\n")),
        (
            "a signed size",
            format!("+{length:x}\r\n{QUESTION}\r\n0\r\n\r\n"),
        ),
        (
            "a size with 0x",
            format!("0x{length:x}\r\n{QUESTION}\r\n0\r\n\r\n"),
        ),
        (
            "a size with a space before",
            format!(" {length:x}\r\n{QUESTION}\r\n0\r\n\r\n"),
        ),
        (
            "a size above 64 bits",
            format!("1{length:016x}\r\n{QUESTION}\r\n0\r\n\r\n"),
        ),
        (
            "a size of 20 digits",
            format!("{}\r\n{QUESTION}\r\n0\r\n\r\n", "f".repeat(20)),
        ),
        (
            "a size too small",
            format!("{:x}\r\n{QUESTION}\r\n0\r\n\r\n", length - 1),
        ),
        (
            "no line break behind the data",
            format!("{length:x}\r\n{QUESTION}0\r\n\r\n"),
        ),
        (
            "other bytes behind the data",
            format!("{length:x}\r\n{QUESTION}XX0\r\n\r\n"),
        ),
        (
            "a NUL in a size",
            format!("{length:x}\0\r\n{QUESTION}\r\n0\r\n\r\n"),
        ),
        (
            "an extension without end",
            format!("{length:x};{}", "a".repeat(100_000)),
        ),
        (
            "trailers without end",
            format!("{}{}", &one_chunk()[..one_chunk().len() - 2], {
                "X-Trailer: a\r\n".repeat(10_000)
            }),
        ),
    ];
    // Where the data ends early, the partial body is not JSON.
    let reasons: &[&str] = &[
        "conflicting_framing",
        "invalid_request",
        "body_too_large",
        "parse_error",
    ];
    let chunked = [("Transfer-Encoding", "chunked")];
    let cases: Vec<_> = bodies
        .iter()
        .map(|(what, body)| (*what, framed(&chunked, body), reasons))
        .collect();
    assert_refused_and_ended(&cases);
}

/// Lines that end elsewhere to other readers, or that are no fields.
#[test]
fn chunk_lines_with_control_characters_are_conflicting() {
    let length = QUESTION.len();
    let chunk = |line: &str| format!("{length:x}{line}\r\n{QUESTION}\r\n0\r\n\r\n");
    let last = |lines: &str| format!("{length:x}\r\n{QUESTION}\r\n0{lines}\r\n\r\n");
    let bodies: [(&str, String); 13] = [
        ("a bare line feed in an extension", chunk(";a\n")),
        ("a bare line feed as an extension", chunk(";\n")),
        ("a bare line feed in a quoted extension", chunk(";a=\"\n\"")),
        ("a carriage return in an extension", chunk(";a\rb")),
        ("a NUL in an extension", chunk(";a\0")),
        ("a bare line feed in the last extension", last(";\n")),
        ("a bare line feed in a trailer", last("\r\nX: y\nZ: z")),
        ("a carriage return in a trailer", last("\r\nX: y\rZ: z")),
        ("a NUL in a trailer", last("\r\nX: \0")),
        ("a blank before a trailer's colon", last("\r\nX : y")),
        ("a folded trailer", last("\r\nX: y\r\n z")),
        ("a trailer without a name", last("\r\n: y")),
        (
            "a request line as a trailer",
            last("\r\nGET /healthz HTTP/1.1"),
        ),
    ];
    let chunked = [("Transfer-Encoding", "chunked")];
    let cases: Vec<_> = bodies
        .iter()
        .map(|(what, body)| (*what, framed(&chunked, body), FRAMING))
        .collect();
    assert_refused_and_ended(&cases);
}

#[test]
fn chunk_extensions_and_trailers_are_dropped() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let length = QUESTION.len();
    let bodies = [
        format!("{length:x};a=b\r\n{QUESTION}\r\n0\r\n\r\n"),
        format!("{length:x};a=\"b;c\"\r\n{QUESTION}\r\n0;d\r\n\r\n"),
        format!("{length:X}\r\n{QUESTION}\r\n0\r\n\r\n"),
        format!("000{length:x}\r\n{QUESTION}\r\n000\r\n\r\n"),
        format!("{length:x}\r\n{QUESTION}\r\n0\r\nX-Trailer: a\r\n\r\n"),
    ];
    for body in bodies {
        let mut client = edge.client();
        client.send(framed(&[("Transfer-Encoding", "chunked")], &body));
        assert_result(&client.response(), "7", RESULT, &body);
    }
    let heads: Vec<_> = node.calls().into_iter().map(|call| call.head).collect();
    assert!(
        heads.iter().all(|head| !head.contains("railer")),
        "no trailer crosses: {heads:?}"
    );
}

/// A request whose head has this text instead of the line `X-Line: a`.
fn with_line(text: &[u8]) -> Vec<u8> {
    let bytes = Request::post(QUESTION).with("X-Line", "a").bytes();
    replace(&bytes, b"X-Line: a\r\n", text)
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes
        .windows(from.len())
        .position(|own| own == from)
        .expect("it is there");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

#[test]
fn a_malformed_header_line_is_refused() {
    let lines: [(&str, &[u8]); 14] = [
        ("a folded line", b"X-Line: a\r\n b\r\n"),
        (
            "a folded line with a tab",
            b"X-Line: a\r\n\tContent-Length: 5\r\n",
        ),
        ("a space before the colon", b"X-Line : a\r\n"),
        (
            "a length with a space before the colon",
            b"Content-Length : 5\r\n",
        ),
        (
            "a coding with a space before the colon",
            b"Transfer-Encoding : chunked\r\n",
        ),
        (
            "a coding with a tab before the colon",
            b"Transfer-Encoding\t: chunked\r\n",
        ),
        ("a NUL in a value", b"X-Line: a\0b\r\n"),
        ("a NUL in a name", b"X-\0Line: a\r\n"),
        (
            "a carriage return in a value",
            b"X-Line: a\rContent-Length: 5\r\n",
        ),
        ("a control byte in a value", b"X-Line: a\x01b\r\n"),
        ("no colon", b"X-Line\r\n"),
        ("no name", b": a\r\n"),
        ("a name with a slash", b"X/Line: a\r\n"),
        ("a name beyond ASCII", b"X-L\xc3\xadne: a\r\n"),
    ];
    let reasons = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let frames = ["Content-Length", "Transfer-Encoding"]
            .iter()
            .any(|name| line.contains(name));
        if frames { EITHER } else { MALFORMED }
    };
    let cases: Vec<_> = lines
        .iter()
        .map(|(what, line)| (*what, with_line(line), reasons(line)))
        .collect();
    assert_refused_and_ended(&cases);
}

#[test]
fn a_malformed_request_line_is_refused() {
    let lines: [(&str, &str); 12] = [
        ("no version", "POST /rpc"),
        ("no target", "POST HTTP/1.1"),
        ("an empty target", "POST  HTTP/1.1"),
        ("no method", " /rpc HTTP/1.1"),
        ("a tab", "POST\t/rpc HTTP/1.1"),
        ("HTTP/2.0", "POST /rpc HTTP/2.0"),
        ("HTTP/1.2", "POST /rpc HTTP/1.2"),
        ("HTTP/0.9", "POST /rpc HTTP/0.9"),
        ("HTTP/1.10", "POST /rpc HTTP/1.10"),
        ("a version in lower case", "POST /rpc http/1.1"),
        ("words after the version", "POST /rpc HTTP/1.1 now"),
        ("a method with a slash", "PO/ST /rpc HTTP/1.1"),
    ];
    let cases: Vec<_> = lines
        .iter()
        .map(|(what, line)| (*what, Request::post(QUESTION).line(line).bytes(), MALFORMED))
        .collect();
    assert_refused_and_ended(&cases);
}

#[test]
fn http_1_1_takes_exactly_one_host() {
    let without = Request::post(QUESTION).without("Host");
    let two = Request::post(QUESTION).with("Host", "other.test");
    assert_refused_and_ended(&[
        ("no Host", without.bytes(), MALFORMED),
        ("two Hosts", two.bytes(), MALFORMED),
    ]);
}

#[test]
fn non_http_bytes_end_the_connection() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &BRISK);
    let cases: [(&str, &[u8]); 6] = [
        (
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        ),
        (
            "HTTP/2 with prior knowledge",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        ),
        ("a PROXY header", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
        ("SSH", b"SSH-2.0-OpenSSH_9.9\r\n\r\n"),
        ("noise", b"\0\xff\xfe\r\n\r\n"),
        ("only JSON", b"{\"jsonrpc\":\"2.0\"}\r\n\r\n"),
    ];
    for (what, bytes) in cases {
        for response in converse(&edge, &[bytes, &contraband()].concat()) {
            assert_one_of(&response, MALFORMED, "null", what);
        }
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

/// Leniency is safe here, as long as each request has an unambiguous end.
#[test]
fn harmless_oddities_never_become_two_requests() {
    let length = QUESTION.len().to_string();
    let bare = String::from_utf8(Request::post(QUESTION).bytes())
        .unwrap()
        .replace("\r\n", "\n");
    let cases = [
        ("bare line feeds", bare.into_bytes()),
        ("one bare line feed", with_line(b"X-Line: a\n")),
        (
            "an empty line before",
            [b"\r\n".to_vec(), Request::post(QUESTION).bytes()].concat(),
        ),
        ("a length with zeros before", {
            framed(&[("Content-Length", &format!("000{length}"))], QUESTION)
        }),
        (
            "a value beyond ASCII",
            with_line(b"X-Line: \xc3\xa4\xff\r\n"),
        ),
        (
            "chunked in other case",
            framed(&[("Transfer-Encoding", "Chunked")], &one_chunk()),
        ),
        ("an absolute target", {
            Request::post(QUESTION)
                .line("POST http://node.invalid/rpc HTTP/1.1")
                .bytes()
        }),
        (
            "two spaces",
            Request::post(QUESTION).line("POST  /rpc HTTP/1.1").bytes(),
        ),
        (
            "two more spaces",
            Request::post(QUESTION).line("POST /rpc  HTTP/1.1").bytes(),
        ),
        (
            "a space in the target",
            Request::post(QUESTION)
                .line("POST /rpc /x HTTP/1.1")
                .bytes(),
        ),
        (
            "a NUL in the target",
            Request::post(QUESTION).line("POST /rpc\0 HTTP/1.1").bytes(),
        ),
        ("bare line feeds between chunks", {
            framed(
                &[("Transfer-Encoding", "chunked")],
                &one_chunk().replace("\r\n", "\n"),
            )
        }),
    ];
    let node = Node::start(good);
    let edge = Edge::with(&node, &BRISK);
    each(cases, |(what, bytes)| {
        let before = node.calls().len();
        let responses = converse(&edge, &[bytes, b"garbage\r\n\r\n".to_vec()].concat());
        let first = responses
            .first()
            .unwrap_or_else(|| panic!("{what}: no answer"));
        assert_common(first, what);
        let answered = usize::from(first.status == 200);
        assert!(
            answered == 1 || first.status / 100 == 4,
            "{what}: {first:?}"
        );
        let late = responses
            .iter()
            .skip(1)
            .all(|response| response.status == 400);
        assert!(
            late,
            "{what}: garbage behind it is no request: {responses:?}"
        );
        assert_eq!(
            node.calls().len() - before,
            answered,
            "{what}: one question at most"
        );
    });
}
