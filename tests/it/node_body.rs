//! Node responses with a wrong body: size, length, coding, JSON, envelope.
//!
//! Rows as in `node_head`. Correct responses must pass as well: exactly 4 MiB, chunks with
//! trailers, a body delimited by the connection's end, a JSON-RPC error.

use portcullis_edge::node::chain::short_reason;

use crate::node_head::{Fault, ask_about, assert_faults, row};
use crate::support::check::{assert_error, assert_one_of, assert_result, each};
use crate::support::edge::Edge;
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::request::{QUESTION, Request, chunked};
use crate::support::script::{
    ANSWER_CAP, SECRET, echo, envelope, http, json, padded_envelope, result, send, send_and_close,
    sized,
};

const INVALID: &[&str] = &["upstream_invalid"];
const OVERSIZED: &[&str] = &["upstream_oversized"];
const EITHER: &[&str] = &["upstream_invalid", "upstream_oversized"];

const CHUNKED: &[&str] = &["Transfer-Encoding: chunked"];

fn flood(text: &str) -> Act {
    Act::Flood(text.repeat(1 + 65_536 / text.len()).into_bytes())
}

#[test]
fn an_answer_above_4_mib_is_oversized() {
    const FAULTS: &[Fault] = &[
        (
            "a length of 4 MiB and 1",
            |call| send(json(padded_envelope(call, ANSWER_CAP + 1))),
            OVERSIZED,
        ),
        (
            "a length of 4 MiB and 1, of which nothing comes",
            |_| {
                vec![
                    Act::Send(http("200 OK", &["Content-Length: 4194305"], "")),
                    Act::Hang,
                ]
            },
            OVERSIZED,
        ),
        (
            "a length of 16 EiB",
            |_| {
                vec![Act::Send(http(
                    "200 OK",
                    &["Content-Length: 18446744073709551615"],
                    "",
                ))]
            },
            OVERSIZED,
        ),
        (
            "4 MiB and 1 in chunks",
            |call| {
                let body = chunked(padded_envelope(call, ANSWER_CAP + 1).as_bytes(), 16_384);
                send(http("200 OK", CHUNKED, body))
            },
            OVERSIZED,
        ),
        (
            "one chunk of 4 MiB and 1, of which nothing comes",
            |_| vec![Act::Send(http("200 OK", CHUNKED, "400001\r\n")), Act::Hang],
            &["upstream_oversized", "upstream_timeout"],
        ),
        (
            "4 MiB and 1, then the end of the connection",
            |call| send_and_close(http("200 OK", &[], padded_envelope(call, ANSWER_CAP + 1))),
            OVERSIZED,
        ),
        (
            "chunks without end",
            |_| {
                vec![
                    Act::Send(http("200 OK", CHUNKED, "")),
                    flood("10\r\nnode after node!\r\n"),
                ]
            },
            OVERSIZED,
        ),
        (
            "bytes without end",
            |_| vec![Act::Send(http("200 OK", &[], "")), flood(" ")],
            OVERSIZED,
        ),
    ];
    // Enough for 4 MiB over the loopback, and short enough for the row that hangs.
    assert_faults(FAULTS, &[("node.timeout", "\"4s\"")]);
}

#[test]
fn an_answer_of_exactly_4_mib_passes() {
    let node = Node::start(|call| {
        let body = padded_envelope(call, ANSWER_CAP);
        match row(call) {
            0 => send(json(body)),
            1 => send(http("200 OK", CHUNKED, chunked(body.as_bytes(), 16_384))),
            2 => send(http(
                "200 OK",
                CHUNKED,
                chunked(body.as_bytes(), ANSWER_CAP),
            )),
            _ => send_and_close(http("200 OK", &[], body)),
        }
    });
    let edge = Edge::start(&node);
    for (row, what) in ["a length", "chunks", "one chunk", "a close"]
        .iter()
        .enumerate()
    {
        let response = edge.ask(&ask_about(row, "1"));
        let calls = node.calls();
        let call = calls.last().expect("the node was queried");
        let body = padded_envelope(call, ANSWER_CAP);
        let result = &body[envelope(call, "").len() - 1..body.len() - 1];
        assert_result(&response, "1", result, &format!("4 MiB declared by {what}"));
    }
}

/// Bodies that are longer or shorter than declared.
const WRONG_LENGTHS: &[Fault] = &[
    (
        "one byte less than declared, then the end",
        |call| {
            let body = envelope(call, "\"a-word-of-the-node\"");
            let length = format!("Content-Length: {}", body.len() + 1);
            send_and_close(http("200 OK", &[&length], body))
        },
        INVALID,
    ),
    (
        "half of what was declared, then a reset",
        |call| {
            let body = envelope(call, "\"a-word-of-the-node\"");
            let length = format!("Content-Length: {}", body.len() * 2);
            vec![Act::Send(http("200 OK", &[&length], body)), Act::Reset]
        },
        &["upstream_invalid", "upstream_unreachable"],
    ),
    (
        "more than declared, so that the JSON is cut",
        |call| {
            let body = envelope(call, "\"a-word-of-the-node\"");
            send(http("200 OK", &["Content-Length: 40"], body))
        },
        INVALID,
    ),
    (
        "no last chunk",
        |call| {
            let mut body = chunked(envelope(call, "1").as_bytes(), 9);
            body.truncate(body.len() - 5);
            send_and_close(http("200 OK", CHUNKED, body))
        },
        INVALID,
    ),
    (
        "a last chunk without its end",
        |call| {
            let mut body = chunked(envelope(call, "1").as_bytes(), 9);
            body.truncate(body.len() - 2);
            send_and_close(http("200 OK", CHUNKED, body))
        },
        INVALID,
    ),
    (
        "half a chunk",
        |_| send_and_close(http("200 OK", CHUNKED, "40\r\n{\"jsonrpc\"")),
        INVALID,
    ),
    (
        "a chunk of no size",
        |_| send_and_close(http("200 OK", CHUNKED, "\r\n{}")),
        INVALID,
    ),
    (
        "a last chunk of no size",
        |call| {
            let body = chunked(envelope(call, "1").as_bytes(), 9);
            send(http(
                "200 OK",
                CHUNKED,
                [&body[..body.len() - 5], b"\r\n\r\n"].concat(),
            ))
        },
        INVALID,
    ),
    (
        "a chunk with an extension of 64 bytes, all in one piece",
        |call| {
            let body = envelope(call, "1");
            let extension = "x".repeat(64);
            let body = format!("{:x};{extension}\r\n{body}\r\n0\r\n\r\n", body.len());
            send(http("200 OK", CHUNKED, body))
        },
        INVALID,
    ),
    (
        "a chunk size that is no number",
        |_| send_and_close(http("200 OK", CHUNKED, "node\r\n{}\r\n0\r\n\r\n")),
        INVALID,
    ),
    (
        "a chunk size above 64 bits",
        |_| {
            send_and_close(http(
                "200 OK",
                CHUNKED,
                "10000000000000002\r\n{}\r\n0\r\n\r\n",
            ))
        },
        EITHER,
    ),
    (
        "a bare line feed in the extension of a chunk",
        |call| {
            let text = envelope(call, "1");
            let body = format!("{:x};\n\r\n{text}\r\n0\r\n\r\n", text.len());
            send(http("200 OK", CHUNKED, body))
        },
        INVALID,
    ),
    (
        "a chunk longer than it says",
        |call| {
            let body = envelope(call, "1");
            let text = format!("{:x}\r\n{body}}}\r\n0\r\n\r\n", body.len());
            send_and_close(http("200 OK", CHUNKED, text))
        },
        INVALID,
    ),
    (
        "a body without a length, cut by the end of the connection",
        |_| send_and_close(http("200 OK", &[], "{\"jsonrpc\":\"2.0\",\"id\":")),
        INVALID,
    ),
];

#[test]
fn a_wrong_content_length_is_invalid() {
    assert_faults(WRONG_LENGTHS, &[]);
}

/// The output of `printf 'A body' | gzip -n`.
const GZIP: [u8; 26] = [
    0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0, 3, 0x73, 0x54, 0x48, 0xca, 0x4f, 0xa9, 0x04, 0, 0xc0, 0x83,
    0xeb, 0x4e, 6, 0, 0, 0,
];

/// 100 KB of gzip that unpack to 100 MB of zeros.
fn bomb() -> Vec<u8> {
    let mut bytes = GZIP[..10].to_vec();
    bytes.extend([
        0xec, 0xc1, 0x01, 0x01, 0, 0, 0, 0x80, 0x90, 0xfe, 0xaf, 0xee, 0x08, 0x0a,
    ]);
    bytes.extend([0_u8; 100_000]);
    bytes
}

#[test]
fn an_encoded_answer_is_invalid_and_never_decoded() {
    const FAULTS: &[Fault] = &[
        (
            "gzip",
            |_| send(sized("200 OK", &["Content-Encoding: gzip"], GZIP)),
            INVALID,
        ),
        (
            "a gzip bomb",
            |_| send(sized("200 OK", &["Content-Encoding: gzip"], bomb())),
            INVALID,
        ),
        ("gzip that is not declared", |_| send(json(GZIP)), INVALID),
        (
            "a right answer that calls itself gzip",
            |call| {
                send(sized(
                    "200 OK",
                    &["Content-Encoding: gzip"],
                    envelope(call, "1"),
                ))
            },
            INVALID,
        ),
        (
            "a right answer that calls itself br",
            |call| {
                send(sized(
                    "200 OK",
                    &["Content-Encoding: br"],
                    envelope(call, "1"),
                ))
            },
            INVALID,
        ),
    ];
    assert_faults(FAULTS, &[]);
}

/// Any text in a whole 200 response; `ID` is replaced by the id of the node's request.
fn body(call: &Call, text: &str) -> Vec<Act> {
    send(json(text.replace("ID", &call.id())))
}

/// Complete bodies that are not a response to the request.
const NO_RESPONSES: &[Fault] = &[
    ("no byte", |call| body(call, ""), INVALID),
    ("white space", |call| body(call, " \n"), INVALID),
    (
        "HTML",
        |call| body(call, "<html>a-word-of-the-node</html>"),
        INVALID,
    ),
    (
        "broken JSON",
        |call| body(call, r#"{"jsonrpc":"2.0","id":ID,"result":"#),
        INVALID,
    ),
    (
        "a cut string",
        |call| body(call, r#"{"jsonrpc":"2.0","id":ID,"result":"a-wo"#),
        INVALID,
    ),
    ("null", |call| body(call, "null"), INVALID),
    ("a number", |call| body(call, "1"), INVALID),
    ("an empty object", |call| body(call, "{}"), INVALID),
    ("an empty array", |call| body(call, "[]"), INVALID),
    (
        "an array",
        |call| body(call, r#"[{"jsonrpc":"2.0","id":ID,"result":1}]"#),
        INVALID,
    ),
    (
        "another id",
        |call| body(call, r#"{"jsonrpc":"2.0","id":"x","result":1}"#),
        INVALID,
    ),
    (
        "an id next to ours",
        |call| body(call, r#"{"jsonrpc":"2.0","id":ID9,"result":1}"#),
        INVALID,
    ),
    (
        "our id as text",
        |call| body(call, r#"{"jsonrpc":"2.0","id":"ID","result":1}"#),
        INVALID,
    ),
    (
        "a null id",
        |call| body(call, r#"{"jsonrpc":"2.0","id":null,"result":1}"#),
        INVALID,
    ),
    (
        "no id",
        |call| body(call, r#"{"jsonrpc":"2.0","result":1}"#),
        INVALID,
    ),
    (
        "result and error",
        |call| {
            let error = r#""error":{"code":1,"message":"a-word-of-the-node"}"#;
            body(
                call,
                &format!(r#"{{"jsonrpc":"2.0","id":ID,"result":1,{error}}}"#),
            )
        },
        INVALID,
    ),
    (
        "result and a null error",
        |call| body(call, r#"{"jsonrpc":"2.0","id":ID,"result":1,"error":null}"#),
        INVALID,
    ),
    (
        "neither",
        |call| body(call, r#"{"jsonrpc":"2.0","id":ID}"#),
        INVALID,
    ),
    (
        "an error that is text",
        |call| {
            body(
                call,
                r#"{"jsonrpc":"2.0","id":ID,"error":"a-word-of-the-node"}"#,
            )
        },
        INVALID,
    ),
    (
        "an error without a code",
        |call| body(call, r#"{"jsonrpc":"2.0","id":ID,"error":{"message":"m"}}"#),
        INVALID,
    ),
    (
        "no version",
        |call| body(call, r#"{"id":ID,"result":1}"#),
        INVALID,
    ),
    (
        "version 1.0",
        |call| body(call, r#"{"jsonrpc":"1.0","id":ID,"result":1}"#),
        INVALID,
    ),
    (
        "a number as version",
        |call| body(call, r#"{"jsonrpc":2.0,"id":ID,"result":1}"#),
        INVALID,
    ),
    (
        "trailing data",
        |call| body(call, r#"{"jsonrpc":"2.0","id":ID,"result":1}x"#),
        INVALID,
    ),
    (
        "a second response behind the first",
        |call| {
            let one = r#"{"jsonrpc":"2.0","id":ID,"result":1}"#;
            body(call, &format!("{one}\n{one}"))
        },
        INVALID,
    ),
    (
        "two results",
        |call| body(call, r#"{"jsonrpc":"2.0","id":ID,"result":1,"result":2}"#),
        INVALID,
    ),
    (
        "two ids",
        |call| body(call, r#"{"jsonrpc":"2.0","id":0,"id":ID,"result":1}"#),
        INVALID,
    ),
    (
        "bad UTF-8",
        |call| {
            let mut text = envelope(call, "\"a-word-of-the-node").into_bytes();
            text.extend(b"\xff\"}");
            send(json(text))
        },
        INVALID,
    ),
    (
        "a byte order mark",
        |call| send(json(format!("\u{feff}{}", envelope(call, "1")))),
        INVALID,
    ),
];

#[test]
fn anything_but_one_json_rpc_response_is_invalid() {
    assert_faults(NO_RESPONSES, &[]);
}

#[test]
fn answers_deeper_than_64_levels_are_invalid() {
    // the response itself is a level
    for (levels, status) in [(63, 200), (64, 502)] {
        let node = Node::start(move |call| {
            let nested = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            vec![Act::Send(result(call, &nested))]
        });
        let response = Edge::start(&node).ask(&Request::post(QUESTION));
        assert_eq!(response.status, status, "{levels}");
        if status == 502 {
            assert_error(&response, "upstream_invalid", "7", "too deep");
        }
    }
}

#[test]
fn unusual_but_right_answers_pass() {
    type Row = (&'static str, fn(&Call) -> Vec<Act>, &'static str);
    const ROWS: &[Row] = &[
        (
            "a null result",
            |call| body(call, r#"{"jsonrpc":"2.0","id":ID,"result":null}"#),
            "null",
        ),
        (
            "white space and another order",
            |call| {
                body(
                    call,
                    " {\"result\" : [ 1.0 , 1e2 ] ,\n\"id\":ID,\"jsonrpc\":\"2.0\"}\r\n",
                )
            },
            "[ 1.0 , 1e2 ]",
        ),
        (
            "no content type",
            |call| send(sized("200 OK", &[], envelope(call, "1"))),
            "1",
        ),
        (
            "identity as coding",
            |call| {
                send(sized(
                    "200 OK",
                    &["Content-Encoding: identity"],
                    envelope(call, "1"),
                ))
            },
            "1",
        ),
        (
            "chunks with an extension",
            |call| {
                let text = envelope(call, "1");
                let body = format!("{:x};a=b\r\n{text}\r\n0\r\n\r\n", text.len());
                send(http("200 OK", CHUNKED, body))
            },
            "1",
        ),
        (
            "chunks with trailers",
            |call| {
                let text = envelope(call, "1");
                let body = format!("{:x}\r\n{text}\r\n0\r\nX-Trailer: a\r\n\r\n", text.len());
                send(http("200 OK", CHUNKED, body))
            },
            "1",
        ),
        (
            "an answer of HTTP/1.0 that ends with its connection",
            |call| send_and_close(format!("HTTP/1.0 200 OK\r\n\r\n{}", envelope(call, "1"))),
            "1",
        ),
        (
            "one byte at a time",
            |call| vec![drip(json(envelope(call, "1")))],
            "1",
        ),
    ];
    let node = Node::start(|call| (ROWS[row(call)].1)(call));
    let edge = Edge::start(&node);
    each(ROWS.iter().enumerate(), |(row, (what, _, result))| {
        assert_result(&edge.ask(&ask_about(row, "7")), "7", result, what);
    });
}

fn drip(bytes: Vec<u8>) -> Act {
    Act::Drip(bytes, std::time::Duration::from_micros(10))
}

/// A whole unsolicited response, with the id that the next request may get.
fn poison(call: &Call) -> Vec<u8> {
    let next = call.json()["id"]
        .as_u64()
        .map(|id| (id + 1).to_string())
        .unwrap_or_default();
    json(format!(
        r#"{{"jsonrpc":"2.0","id":{next},"result":"{SECRET}"}}"#
    ))
}

#[test]
fn surplus_bytes_never_answer_the_next_request() {
    type Row = (&'static str, fn(&Call) -> Vec<Act>);
    const ROWS: &[Row] = &[
        ("an answer behind the answer", |call| {
            send([json(envelope(call, "1")), poison(call)].concat())
        }),
        ("a line break behind the answer", |call| {
            send([json(envelope(call, "1")), b"\r\n".to_vec()].concat())
        }),
        ("an answer behind the last chunk", |call| {
            let body = chunked(envelope(call, "1").as_bytes(), 10);
            send([http("200 OK", CHUNKED, body), poison(call)].concat())
        }),
        ("an answer behind a status without a body", |call| {
            send([http("204 No Content", &[], ""), poison(call)].concat())
        }),
        ("a body behind a 304", |call| {
            send([http("304 Not Modified", &[], ""), poison(call)].concat())
        }),
        ("an answer behind a 404", |call| {
            send([sized("404 Not Found", &[], "no"), poison(call)].concat())
        }),
    ];
    let node = Node::start(|call| match ROWS.get(row(call)) {
        Some((_, act)) => act(call),
        None => echo(call),
    });
    let edge = Edge::start(&node);
    for (row, (what, _)) in ROWS.iter().enumerate() {
        let first = edge.ask(&ask_about(row, "\"first\""));
        assert!(!first.text().contains(SECRET), "{what}: {}", first.text());
        for number in 1000..1005 {
            let expected = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
            let next = edge.ask(&ask_about(number, "\"next\""));
            assert_result(&next, "\"next\"", &expected, &format!("after {what}"));
        }
    }
}

#[test]
fn a_mismatched_answer_retires_its_connection() {
    let node = Node::start(|call| match call.number {
        1 => send(json(r#"{"jsonrpc":"2.0","id":"x","result":1}"#)),
        _ => echo(call),
    });
    let edge = Edge::start(&node);
    let first = edge.ask(&ask_about(1, "1"));
    assert_error(
        &first,
        "upstream_invalid",
        "1",
        "an answer to something else",
    );
    assert_eq!(
        edge.ask(&ask_about(2, "2")).status,
        200,
        "the next one is answered"
    );
    assert_eq!(
        node.connections(),
        2,
        "the answer to the first may still come over its own"
    );
}

#[test]
fn idle_bytes_never_answer_the_next_request() {
    let (answered, said) = (Latch::default(), Latch::default());
    let (hold, tell) = (answered.clone(), said.clone());
    let node = Node::start(move |call| {
        let mut acts = echo(call);
        if call.number == 1 {
            let late = [
                Act::Hold(hold.clone()),
                Act::Send(poison(call)),
                Act::Tell(tell.clone()),
            ];
            acts.extend(late);
        }
        acts
    });
    let edge = Edge::start(&node);
    assert_eq!(
        edge.ask(&ask_about(1, "1")).status,
        200,
        "the first answer is right"
    );
    answered.open();
    assert!(said.wait(), "the node has sent more than was requested");
    for number in 2..6 {
        let expected = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
        let next = edge.ask(&ask_about(number, "\"next\""));
        assert_result(
            &next,
            "\"next\"",
            &expected,
            "an answer to nobody's question is dropped",
        );
    }
}

#[test]
fn a_node_error_passes_unchanged_with_200() {
    const ERRORS: [&str; 4] = [
        r#"{"code":20,"message":"Contract not found"}"#,
        r#"{"code": -32602 ,"message":"Invalid params","data":{"a":[1.0,"\u0062"]}}"#,
        r#"{"code":41,"message":"Transaction execution error","data":"x"}"#,
        r#"{"message":"","code":1}"#,
    ];
    let node = Node::start(|call| {
        let error = ERRORS[row(call)];
        send(json(format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
            call.id()
        )))
    });
    let edge = Edge::start(&node);
    for (row, error) in ERRORS.iter().enumerate() {
        let response = edge.ask(&ask_about(row, "\"mine\""));
        assert_eq!(
            response.status, 200,
            "an error of the node is a normal answer: {error}"
        );
        let expected = format!(r#"{{"jsonrpc":"2.0","id":"mine","error":{error}}}"#);
        assert_eq!(
            response.text(),
            expected,
            "an error of the node passes as it is"
        );
        crate::support::check::assert_common(&response, error);
    }
}

#[test]
fn a_failure_echoes_the_request_id_exactly() {
    let node = Node::start(|_| send(json("no")));
    let edge = Edge::start(&node);
    for id in [
        "1",
        "-1",
        "1.0",
        "1e2",
        "18446744073709551616",
        "\"a\\u0062\"",
        "\"\"",
    ] {
        let response = edge.ask(&ask_about(0, id));
        assert_one_of(&response, INVALID, id, "the answer of the node is no JSON");
    }
}

#[test]
fn clients_get_the_short_text_only() {
    let report = "Error at pc=0:1: 0x544f4f5f4541524c59 ('TOO_EARLY')\n\
                  0x454e545259504f494e545f4641494c4544 ('ENTRYPOINT_FAILED').";
    assert_eq!(short_reason(report).as_deref(), Some("TOO_EARLY"));
    for report in [
        "",
        "Class with hash 0x123 is not declared.",
        "('')",
        "('a\nb')",
    ] {
        assert_eq!(short_reason(report), None, "{report:?}");
    }
}
