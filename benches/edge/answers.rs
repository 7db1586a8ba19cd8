//! Responses of the small node: a chain that does not change, and valid results of the thirteen
//! reads.
//!
//! Every block is `ACCEPTED_ON_L2` and never changes, so that the program's watch trusts the chain.
//! Every transaction has a receipt, in block 1. Every hash and address has a class of
//! [`CLASS_SIZE`] bytes. Shapes: Starknet API 0.10.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// 256 KiB: the size of typical account classes.
pub(crate) const CLASS_SIZE: usize = 256 << 10;

const HEAD: u64 = 8;

/// Starknet API: block not found.
const BLOCK_NOT_FOUND: &str = r#""error":{"code":24,"message":"Block not found"}"#;
/// JSON-RPC 2.0: method not found.
const METHOD_NOT_FOUND: &str = r#""error":{"code":-32601,"message":"Method not found"}"#;

static CLASS: LazyLock<String> = LazyLock::new(|| {
    let mut program = String::new();
    let rest = r#","contract_class_version":"0.1.0","entry_points_by_type":{"CONSTRUCTOR":[],"EXTERNAL":[],"L1_HANDLER":[]},"abi":"[]"}"#;
    let mut felt = 0x1_0000_u64;
    while program.len() + rest.len() < CLASS_SIZE {
        let comma = if program.is_empty() { "" } else { "," };
        let _infallible = write!(program, r#"{comma}"{felt:#x}""#);
        felt += 0x5bd1;
    }
    format!(r#""result":{{"sierra_program":[{program}]{rest}"#)
});

/// The response's `result` or `error` member, name included.
pub(crate) fn payload(method: &str, params: &Value) -> Cow<'static, str> {
    let text = match method.strip_prefix("starknet_").unwrap_or_default() {
        "specVersion" => r#""result":"0.10.2""#.into(),
        "chainId" => r#""result":"0x504f525443554c4c49535f444556""#.into(),
        "blockNumber" => format!(r#""result":{HEAD}"#),
        "getBlockWithTxHashes" => block(argument(params, "block_id", 0)),
        "getTransactionByHash" => transaction(hash_in(params)),
        "getTransactionReceipt" => receipt(hash_in(params)),
        "getTransactionStatus" => {
            r#""result":{"finality_status":"ACCEPTED_ON_L2","execution_status":"SUCCEEDED"}"#.into()
        }
        "getClass" | "getClassAt" => return Cow::Borrowed(CLASS.as_str()),
        "getClassHashAt" => r#""result":"0xc1a55""#.into(),
        "getNonce" => r#""result":"0x2a""#.into(),
        "call" => r#""result":["0x1","0x0"]"#.into(),
        "estimateFee" => estimate(),
        _ => METHOD_NOT_FOUND.into(),
    };
    Cow::Owned(text)
}

/// A parameter by name or by position.
fn argument<'a>(params: &'a Value, name: &str, position: usize) -> &'a Value {
    params
        .get(name)
        .or_else(|| params.get(position))
        .unwrap_or(&Value::Null)
}

fn hash_in(params: &Value) -> &str {
    argument(params, "transaction_hash", 0)
        .as_str()
        .unwrap_or("0x0")
}

fn hash_of(number: u64) -> String {
    format!("0xb10c{number:060x}")
}

fn block(id: &Value) -> String {
    let by_hash = |hash: &Value| {
        let number = hash.as_str()?.strip_prefix("0xb10c")?;
        u64::from_str_radix(number, 16).ok()
    };
    let number = match id {
        Value::String(tag) if tag != "l1_accepted" => Some(HEAD),
        _ => id
            .get("block_number")
            .and_then(Value::as_u64)
            .or_else(|| id.get("block_hash").and_then(by_hash)),
    };
    match number.filter(|number| *number <= HEAD) {
        Some(number) => accepted_block(number),
        None => BLOCK_NOT_FOUND.into(),
    }
}

fn accepted_block(number: u64) -> String {
    let hash = hash_of(number);
    let parent = number.checked_sub(1).map_or_else(|| "0x0".into(), hash_of);
    let timestamp = 1_700_000_000 + number;
    let price = r#"{"price_in_wei":"0x3b9aca00","price_in_fri":"0x3b9aca00"}"#;
    format!(
        r#""result":{{"status":"ACCEPTED_ON_L2","block_hash":"{hash}","parent_hash":"{parent}","block_number":{number},"new_root":"0x0","timestamp":{timestamp},"sequencer_address":"0x1000","l1_gas_price":{price},"l2_gas_price":{price},"l1_data_gas_price":{price},"l1_da_mode":"BLOB","starknet_version":"0.14.4","event_count":1,"transaction_count":1,"state_diff_length":1,"event_commitment":"0xe{number:x}","receipt_commitment":"0xf{number:x}","state_diff_commitment":"0xd{number:x}","transaction_commitment":"0xc{number:x}","transactions":["0x7{number:x}"]}}"#
    )
}

fn bounds() -> String {
    let one = r#"{"max_amount":"0x5f5e100","max_price_per_unit":"0x3b9aca00"}"#;
    format!(r#"{{"l1_gas":{one},"l1_data_gas":{one},"l2_gas":{one}}}"#)
}

fn transaction(hash: &str) -> String {
    let bounds = bounds();
    format!(
        r#""result":{{"transaction_hash":"{hash}","type":"INVOKE","version":"0x3","sender_address":"0x64b4","calldata":["0x1","0x4718","0x83af","0x3","0x1","0x1","0x0"],"signature":["0x1","0x2"],"nonce":"0x1","resource_bounds":{bounds},"tip":"0x0","paymaster_data":[],"account_deployment_data":[],"nonce_data_availability_mode":"L1","fee_data_availability_mode":"L1"}}"#
    )
}

fn receipt(hash: &str) -> String {
    let block = hash_of(1);
    let event = r#"{"from_address":"0x4718","keys":["0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9"],"data":["0x64b48806902a367c8598f4f95c305e8c1a1acba5f082d294a43793113115691","0x1000","0x5af3107a4000","0x0"]}"#;
    format!(
        r#""result":{{"type":"INVOKE","transaction_hash":"{hash}","actual_fee":{{"amount":"0x5af3107a4000","unit":"FRI"}},"messages_sent":[],"events":[{event},{event}],"execution_status":"SUCCEEDED","finality_status":"ACCEPTED_ON_L2","block_hash":"{block}","block_number":1,"execution_resources":{{"l1_gas":0,"l1_data_gas":128,"l2_gas":1048576}}}}"#
    )
}

fn estimate() -> String {
    r#""result":[{"l1_gas_consumed":"0x0","l1_gas_price":"0x1","l2_gas_consumed":"0x100000","l2_gas_price":"0x1","l1_data_gas_consumed":"0x80","l1_data_gas_price":"0x1","overall_fee":"0x100080","unit":"FRI"}]"#.into()
}
