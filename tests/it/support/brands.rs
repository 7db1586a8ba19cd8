//! Other node implementations, as far as they differ: paths, limits, pruned blocks, refusals.
//!
//! The answers follow their sources and documents and are not recorded from running nodes: Katana
//! and Madara use jsonrpsee, Pathfinder and Juno code of their own.

use crate::support::node::{Act, Call};
use crate::support::script::{http, json, result, send, send_and_close, sized};

/// The first block that a Pathfinder with `--storage.blockchain-history` still has here.
pub(crate) const OLDEST: u64 = 1_000;

/// Answers that all of them have in common.
fn common(call: &Call) -> Vec<Act> {
    let body = call.json();
    send(match body["method"].as_str().unwrap_or_default() {
        "starknet_chainId" => result(call, "\"0x534e5f5345504f4c4941\""),
        "starknet_specVersion" => result(call, "\"0.10.2\""),
        "starknet_blockNumber" => result(call, "4242"),
        "starknet_getBlockWithTxHashes" => {
            let number = body["params"]["block_id"]["block_number"]
                .as_u64()
                .unwrap_or(4_242);
            let block = format!(
                r#"{{"status":"ACCEPTED_ON_L2","block_number":{number},"block_hash":"{number:#x}",
                "parent_hash":"0x1","timestamp":1700000000,"transactions":[]}}"#
            );
            result(call, &block)
        }
        // a known method without its parameters
        name if name.starts_with("starknet_")
            && body["params"].as_array().is_some_and(Vec::is_empty) =>
        {
            error(call, -32602, "Invalid params")
        }
        _ => error(call, -32601, "Method not found"),
    })
}

fn error(call: &Call, code: i64, message: &str) -> Vec<u8> {
    let (id, error) = (
        call.id(),
        format!(r#"{{"code":{code},"message":"{message}"}}"#),
    );
    json(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

fn is_at(call: &Call, path: &str) -> bool {
    call.head.starts_with(&format!("POST {path} HTTP/1.1\r\n"))
}

fn method(call: &Call) -> String {
    call.json()["method"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Pathfinder without old blocks.
pub(crate) fn pathfinder(call: &Call) -> Vec<Act> {
    let body = call.json();
    let number = body["params"]["block_id"]["block_number"].as_u64();
    match method(call).as_str() {
        _ if !is_at(call, "/rpc/v0_10") => send(sized("404 Not Found", &[], "")),
        "pathfinder_version" => send(result(call, "\"v0.23.0\"")),
        _ if number.is_some_and(|number| number < OLDEST) => {
            send(error(call, 24, "Block not found"))
        }
        _ => common(call),
    }
}

/// Juno, which compresses for clients that accept gzip.
pub(crate) fn juno(call: &Call) -> Vec<Act> {
    let accepts = call
        .headers()
        .into_iter()
        .find(|(name, _)| name == "accept-encoding");
    let is_gzip = accepts.is_none_or(|(_, value)| value.contains("gzip") || value.contains('*'));
    match method(call).as_str() {
        _ if !is_at(call, "/v0_10") => send(sized("404 Not Found", &[], "")),
        _ if is_gzip => send(sized(
            "200 OK",
            &["Content-Encoding: gzip"],
            [0x1f, 0x8b, 8, 0],
        )),
        "juno_version" => send(result(call, "\"v0.15.11\"")),
        _ => common(call),
    }
}

/// Katana, which answers no more than 10 MiB.
pub(crate) fn katana(call: &Call) -> Vec<Act> {
    match method(call).as_str() {
        _ if !is_at(call, "/") => send(sized("404 Not Found", &[], "")),
        "starknet_getClass" => send(error(call, -32008, "Response is too big")),
        _ => common(call),
    }
}

/// The answer of jsonrpsee to a connection above its limit.
pub(crate) fn too_many_connections() -> Vec<Act> {
    const TEXT: &str = "Too many connections. Please try again later.";
    let length = format!("content-length: {}", TEXT.len());
    let lines = ["content-type: text/plain; charset=utf-8", &length];
    send_and_close(http("429 Too Many Requests", &lines, TEXT))
}

/// starknet-devnet, which has a configuration.
pub(crate) fn devnet(call: &Call) -> Vec<Act> {
    match method(call).as_str() {
        "devnet_getConfig" => send(result(call, "{\"seed\":1}")),
        _ => common(call),
    }
}
