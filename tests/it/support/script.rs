//! What the node of a test can say: whole answers, and every way to get one wrong.
//!
//! In: the request the node got. Out: [`Act`]s for `node`. Each answer carries headers that must
//! never reach a client, and each wrong one carries [`SECRET`], so that a test can see a leak.

use crate::support::node::{Act, Call};

/// Stands for whatever a node says that is none of a client's business.
pub(crate) const SECRET: &str = "a-word-of-the-node";

/// The result that [`good`] answers with.
pub(crate) const RESULT: &str = r#""0x1""#;

/// 4 MiB, the most that a node may answer.
pub(crate) const ANSWER_CAP: usize = 4 * 1024 * 1024;

/// One HTTP response: status line and header lines as given, then the body as given.
pub(crate) fn http(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for line in headers {
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body.as_ref());
    bytes
}

/// A complete answer of any status with a length, and with headers that must not pass.
pub(crate) fn sized(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = format!("Content-Length: {}", body.len());
    let mut lines = vec![
        length.as_str(),
        "Server: starknet-devnet",
        "Set-Cookie: node=a-word-of-the-node",
        "X-Node: a-word-of-the-node",
        "Access-Control-Allow-Origin: https://node.invalid",
        "Cache-Control: public, max-age=3600",
        "X-Request-Id: id-of-the-node",
    ];
    lines.extend_from_slice(headers);
    http(status, &lines, body)
}

/// The JSON-RPC response to `call` with this result.
pub(crate) fn envelope(call: &Call, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, call.id())
}

/// A right answer with this result.
pub(crate) fn result(call: &Call, result: &str) -> Vec<u8> {
    json(envelope(call, result))
}

/// Any text as a 200 answer that calls itself JSON.
pub(crate) fn json(body: impl AsRef<[u8]>) -> Vec<u8> {
    sized("200 OK", &["Content-Type: application/json"], body)
}

/// The plain right answer.
pub(crate) fn good(call: &Call) -> Vec<Act> {
    vec![Act::Send(result(call, RESULT))]
}

/// A right answer that repeats the params the node got: shows which question it belongs to.
pub(crate) fn echo(call: &Call) -> Vec<Act> {
    vec![Act::Send(result(call, &call.json()["params"].to_string()))]
}

/// A right answer whose body is exactly `size` bytes long.
pub(crate) fn padded_envelope(call: &Call, size: usize) -> String {
    let frame = envelope(call, r#""""#).len();
    envelope(call, &format!("\"{}\"", "a".repeat(size - frame)))
}

/// One step that sends.
pub(crate) fn send(bytes: impl Into<Vec<u8>>) -> Vec<Act> {
    vec![Act::Send(bytes.into())]
}

/// Sends, then hangs up.
pub(crate) fn send_and_close(bytes: impl Into<Vec<u8>>) -> Vec<Act> {
    vec![Act::Send(bytes.into()), Act::Close]
}
