//! Responses of a test node: complete ones, and every way to get one wrong.
//!
//! In: the request that the node received. Out: [`Act`]s for `node`. Each response has headers that
//! must never reach a client, and each wrong one contains [`SECRET`], so that a test can detect a
//! leak.

use crate::support::node::{Act, Call};

/// Text of the node that must never reach a client.
pub(crate) const SECRET: &str = "a-word-of-the-node";

/// The result that [`good`] responds with.
pub(crate) const RESULT: &str = r#""0x1""#;

/// 4 MiB, the limit on a node's response.
pub(crate) const ANSWER_CAP: usize = 4 * 1024 * 1024;

/// One HTTP response with exactly this status line, these header lines and this body.
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

/// A complete response of any status with a length, and with headers that must not be forwarded.
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
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
        call.id()
    )
}

/// A correct response with this result.
pub(crate) fn result(call: &Call, result: &str) -> Vec<u8> {
    json(envelope(call, result))
}

/// Any text as a 200 response with a JSON media type.
pub(crate) fn json(body: impl AsRef<[u8]>) -> Vec<u8> {
    sized("200 OK", &["Content-Type: application/json"], body)
}

/// The correct response with [`RESULT`].
pub(crate) fn good(call: &Call) -> Vec<Act> {
    vec![Act::Send(result(call, RESULT))]
}

/// A correct response that repeats the request's params, to show which request it belongs to.
pub(crate) fn echo(call: &Call) -> Vec<Act> {
    vec![Act::Send(result(call, &call.json()["params"].to_string()))]
}

/// A correct response whose body is exactly `size` bytes long.
pub(crate) fn padded_envelope(call: &Call, size: usize) -> String {
    let frame = envelope(call, r#""""#).len();
    envelope(call, &format!("\"{}\"", "a".repeat(size - frame)))
}

/// One step that sends.
pub(crate) fn send(bytes: impl Into<Vec<u8>>) -> Vec<Act> {
    vec![Act::Send(bytes.into())]
}

/// Sends, then closes the connection.
pub(crate) fn send_and_close(bytes: impl Into<Vec<u8>>) -> Vec<Act> {
    vec![Act::Send(bytes.into()), Act::Close]
}
