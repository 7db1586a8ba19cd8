//! Which answers are verified, and how long their results may be cached.

use super::*;
use crate::rpc::json::Json;

const L1: Option<CachePolicy> = Some(CachePolicy::WithBlock(7));
const L2: Option<CachePolicy> = Some(CachePolicy::UntilL1(7));

#[test]
fn an_answer_keeps_the_bytes_of_its_payload() {
    for (answer, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#,
            Outcome::Result(br#""0x1""#),
        ),
        (r#"{"result": [1.0, {"a":[]}] ,"id":7,"jsonrpc":"2.0"}"#, {
            Outcome::Result(br#"[1.0, {"a":[]}]"#)
        }),
        (
            r#" {"jsonrpc":"2.0","id":7,"result":null} "#,
            Outcome::Result(b"null"),
        ),
        (r#"{"jsonrpc":"2.0","result":{"a":1,"id":7},"id":7}"#, {
            Outcome::Result(br#"{"a":1,"id":7}"#)
        }),
        (
            r#"{"jsonrpc":"2.0","result": "0x1" ,"id":7}"#,
            Outcome::Result(br#""0x1""#),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"result":1,"x":{"y":2}}"#,
            Outcome::Result(b"1"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"m","data":[1]}}"#,
            Outcome::Error(br#"{"code":-32602,"message":"m","data":[1]}"#),
        ),
    ] {
        assert_eq!(
            Outcome::verify(answer.as_bytes(), 7),
            Some(expected),
            "{answer}"
        );
    }
}

#[test]
fn other_responses_than_ours_are_refused() {
    for answer in [
        &b""[..],
        b"{}",
        b"[]",
        b"null",
        b"<html>",
        br#"[{"jsonrpc":"2.0","id":7,"result":1}]"#,
        br#"{"jsonrpc":"2.0","id":7,"result":1} {}"#,
        br#"{"jsonrpc":"2.0","id":7,"result":1"#,
        br#"{"jsonrpc":"2.0","id":7,"result":"0x"#,
        br#"{"jsonrpc":"2.0","id":8,"result":1}"#,
        br#"{"jsonrpc":"2.0","id":"7","result":1}"#,
        br#"{"jsonrpc":"2.0","id":7.0,"result":1}"#,
        br#"{"jsonrpc":"2.0","id":null,"result":1}"#,
        br#"{"jsonrpc":"2.0","result":1}"#,
        br#"{"id":7,"result":1}"#,
        br#"{"jsonrpc":"1.0","id":7,"result":1}"#,
        br#"{"jsonrpc":"2.0","id":7}"#,
        br#"{"jsonrpc":"2.0","id":7,"result":1,"error":{"code":1,"message":"m"}}"#,
        br#"{"jsonrpc":"2.0","id":7,"result":1,"error":null}"#,
        br#"{"jsonrpc":"2.0","id":7,"result":1,"result":2}"#,
        br#"{"jsonrpc":"2.0","id":7,"id":7,"result":1}"#,
        br#"{"jsonrpc":"2.0","result":1,"result":2,"id":7}"#,
        br#"{"jsonrpc":"2.0","result":1,"id":8,"id":7}"#,
        br#"{"jsonrpc":"2.0","id":7,"result":}"#,
        br#"{"jsonrpc":"2.0","id":7,"result":1,}"#,
        br#"{"jsonrpc":"2.0","result":1,"id":77}"#,
        br#"{"jsonrpc":"2.0","result":{"x":1,"id":7}"#,
        br#"{"jsonrpc":"2.0","id":7,"error":null}"#,
        br#"{"jsonrpc":"2.0","id":7,"error":"text"}"#,
        br#"{"jsonrpc":"2.0","id":7,"error":{"message":"m"}}"#,
        br#"{"jsonrpc":"2.0","id":7,"error":{"code":"1","message":"m"}}"#,
        br#"{"jsonrpc":"2.0","id":7,"error":{"code":1}}"#,
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xff\"}",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}",
    ] {
        assert_eq!(
            Outcome::verify(answer, 7),
            None,
            "{}",
            String::from_utf8_lossy(answer)
        );
    }
}

#[test]
fn a_block_is_cached_by_its_own_status() {
    for (block, policy) in [
        (
            r#"{"status":"ACCEPTED_ON_L1","block_number":7,"transactions":[]}"#,
            L1,
        ),
        (r#"{"status":"ACCEPTED_ON_L2","block_number":7}"#, L2),
        (
            "{\"block_number\":7,\n \"st\\u0061tus\":\"ACCEPTED\\u005fON_L2\"}",
            L2,
        ),
        (r#"{"status":"PRE_CONFIRMED","block_number":7}"#, None),
        (r#"{"status":"REJECTED","block_number":7}"#, None),
        (r#"{"status":"accepted_on_l1","block_number":7}"#, None),
        (r#"{"status":"ACCEPTED_ON_L1 ","block_number":7}"#, None),
        (r#"{"status":null,"block_number":7}"#, None),
        (r#"{"block_number":7}"#, None),
        (r#"{"status":"ACCEPTED_ON_L1"}"#, None),
        (r#"{"status":"ACCEPTED_ON_L1","block_number":null}"#, None),
        (r#"{"status":"ACCEPTED_ON_L1","block_number":"7"}"#, None),
        (r#"{"status":"ACCEPTED_ON_L1","block_number":7.0}"#, None),
        (r#"{"status":"ACCEPTED_ON_L1","block_number":-7}"#, None),
        (
            r#"{"block":{"status":"ACCEPTED_ON_L1"},"block_number":7}"#,
            None,
        ),
        (
            r#"{"status":"ACCEPTED_ON_L2","block_number":7,"status":"ACCEPTED_ON_L1"}"#,
            None,
        ),
        (
            r#"{"status":"ACCEPTED_ON_L1","block_number":7,"block_number":7}"#,
            None,
        ),
        (
            r#"{"status":"ACCEPTED_ON_L1","st\u0061tus":"X","block_number":7}"#,
            None,
        ),
        (
            r#"{"finality_status":"ACCEPTED_ON_L1","block_number":7}"#,
            None,
        ),
        (r#"[{"status":"ACCEPTED_ON_L1","block_number":7}]"#, None),
        (r#"{"status":"ACCEPTED_ON_L1","block_number":7"#, None),
        ("null", None),
        ("", None),
    ] {
        assert_eq!(CacheClass::BlockOfHash.policy(block), policy, "{block}");
    }
}

#[test]
fn a_block_by_number_must_be_final() {
    let block = |status: &str| format!(r#"{{"status":"{status}","block_number":7}}"#);
    for (class, status, policy) in [
        (CacheClass::BlockAt(7), "ACCEPTED_ON_L1", L1),
        (CacheClass::BlockAt(7), "ACCEPTED_ON_L2", None),
        (CacheClass::BlockAt(8), "ACCEPTED_ON_L1", None),
    ] {
        assert_eq!(class.policy(&block(status)), policy, "{class:?} {status}");
    }
}

#[test]
fn a_receipt_is_cached_by_its_finality() {
    for (receipt, policy) in [
        (
            r#"{"finality_status":"ACCEPTED_ON_L1","block_number":7}"#,
            L1,
        ),
        (
            r#"{"finality_status":"ACCEPTED_ON_L2","block_number":7}"#,
            L2,
        ),
        (r#"{"finality_status":"ACCEPTED_ON_L2"}"#, None),
        (
            r#"{"finality_status":"PRE_CONFIRMED","block_number":7}"#,
            None,
        ),
        (r#"{"status":"ACCEPTED_ON_L2","block_number":7}"#, None),
    ] {
        assert_eq!(CacheClass::Receipt.policy(receipt), policy, "{receipt}");
    }
}

#[test]
fn a_class_depends_on_its_block() {
    for (class, result, policy) in [
        (CacheClass::ClassAt(7), r#"{"abi":[]}"#, L1),
        (CacheClass::ClassAt(7), "null", None),
        (CacheClass::ClassAtHead, r#"{"abi":[]}"#, None),
        (CacheClass::Constant, r#""0x1""#, Some(CachePolicy::Briefly)),
        (CacheClass::Constant, "null", None),
    ] {
        assert_eq!(class.policy(result), policy, "{class:?} {result}");
    }
}

#[test]
fn reads_of_what_is_constant_may_be_cached() {
    const ANY: &str = r#","0x1"]"#;
    let block = |name: &str, rest| format!(r#"[{name}{rest}"#);
    let (number, hash) = (r#"{"block_number":7}"#, r#"{"block_hash":"0x7"}"#);
    let (latest, accepted) = (r#""latest""#, r#""l1_accepted""#);
    let pre_confirmed = r#""pre_confirmed""#;
    for (method, params, class) in [
        (Method::ChainId, "[]".into(), Some(CacheClass::Constant)),
        (Method::SpecVersion, "[]".into(), Some(CacheClass::Constant)),
        (
            Method::GetClass,
            block(latest, ANY),
            Some(CacheClass::ClassAtHead),
        ),
        (
            Method::GetClass,
            block(pre_confirmed, ANY),
            Some(CacheClass::ClassAtHead),
        ),
        (
            Method::GetClass,
            block(number, ANY),
            Some(CacheClass::ClassAt(7)),
        ),
        (Method::GetClass, block(accepted, ANY), None),
        (Method::GetClass, block(hash, ANY), None),
        (Method::GetClassAt, block(number, ANY), None),
        (
            Method::GetBlockWithTxHashes,
            block(number, "]"),
            Some(CacheClass::BlockAt(7)),
        ),
        (
            Method::GetBlockWithTxHashes,
            block(hash, "]"),
            Some(CacheClass::BlockOfHash),
        ),
        (Method::GetBlockWithTxHashes, block(latest, "]"), None),
        (
            Method::GetTransactionReceipt,
            r#"["0x1"]"#.into(),
            Some(CacheClass::Receipt),
        ),
        (Method::GetTransactionStatus, r#"["0x1"]"#.into(), None),
        (Method::BlockNumber, "[]".into(), None),
    ] {
        let parsed = Params::parse(method, Json::parse(params.as_bytes())).unwrap();
        assert_eq!(
            CacheClass::of(method, &parsed),
            class,
            "{method:?} {params}"
        );
    }
}
