//! Forbidden transaction fields, and malformed requests.
//!
//! Each case is refused before its signature is verified, so it is not signed again.

use super::threats_text::scene;
use crate::support::relay::expect::{rpc_refused, submitted};
use crate::support::relay::stage::{authorised, post};
use crate::support::relay::user::ID;
use crate::support::request::rpc;

const TIP: &str = r#""tip":"0x0""#;

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn tip_paymaster_and_deployment_data_are_refused() {
    let (stage, fine) = scene();
    let (paymaster, deployment) = (r#""paymaster_data":["#, r#""account_deployment_data":["#);
    stage.assert_tricks(
        &fine,
        &[
            ("a tip", fine.bent(TIP, r#""tip":"0x5""#), "tip_not_zero"),
            (
                "the highest tip",
                fine.bent(TIP, r#""tip":"0xffffffffffffffff""#),
                "tip_not_zero",
            ),
            (
                "a paymaster",
                fine.bent(paymaster, &format!("{paymaster}\"0x1\"")),
                "paymaster_data",
            ),
            (
                "a paymaster 0",
                fine.bent(paymaster, &format!("{paymaster}\"0x0\"")),
                "paymaster_data",
            ),
            (
                "a deployment",
                fine.bent(deployment, &format!("{deployment}\"0x1\"")),
                "account_deployment_data",
            ),
            (
                "a text for none",
                fine.bent("\"paymaster_data\":[]", "\"paymaster_data\":\"\""),
                { "invalid_request" },
            ),
        ],
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn data_availability_modes_must_be_l1() {
    let (stage, fine) = scene();
    let [nonce, fee] =
        ["nonce", "fee"].map(|which| format!(r#""{which}_data_availability_mode":"L1""#));
    let to = |from: &str, mode: &str| fine.bent(from, &from.replace("\"L1\"", mode));
    stage.assert_tricks(
        &fine,
        &[
            (
                "L2 for the nonce",
                to(&nonce, "\"L2\""),
                "data_availability_mode",
            ),
            (
                "L2 for the fee",
                to(&fee, "\"L2\""),
                "data_availability_mode",
            ),
            ("the number of L1", to(&fee, "0"), "invalid_request"),
            ("lower case", to(&fee, "\"l1\""), "invalid_request"),
            ("null", to(&nonce, "null"), "invalid_request"),
        ],
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn proof_fields_are_refused_even_when_empty() {
    let (stage, fine) = scene();
    let values = [
        r#""proof":"""#,
        r#""proof":"AAAA""#,
        r#""proof":[]"#,
        r#""proof":null"#,
        r#""proof_facts":[]"#,
        r#""proof_facts":null"#,
        r#""proof_facts":["0x1"]"#,
    ];
    let tricks = values.map(|value| {
        (
            value,
            fine.bent(TIP, &format!("{TIP},{value}")),
            "proof_data",
        )
    });
    stage.assert_tricks(&fine, &tricks);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_version_other_than_3_is_refused() {
    let (stage, fine) = scene();
    let version = r#""version":"0x3""#;
    let query = "\"0x100000000000000000000000000000003\"";
    let rows = [
        "\"0x03\"", "\"0x1\"", "\"0x0\"", "\"0x2\"", "\"3\"", "\"0X3\"", "\"\"", query,
    ];
    let to = |value: &str| fine.bent(version, &format!(r#""version":{value}"#));
    let mut tricks: Vec<_> = rows
        .iter()
        .map(|value| (*value, to(value), "transaction_version"))
        .collect();
    tricks.push(("a number", to("3"), "invalid_request"));
    tricks.push(("null", to("null"), "invalid_request"));
    tricks.push((
        "left out",
        fine.bent(r#""version":"0x3","#, ""),
        "invalid_request",
    ));
    stage.assert_tricks(&fine, &tricks);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_batch_of_writes_is_refused() {
    let (stage, fine) = scene();
    let one = fine.body();
    stage.assert_tricks(
        &fine,
        &[
            ("of none", b"[]".to_vec(), "batch"),
            ("of one", format!("[{one}]").into_bytes(), "batch"),
            ("of two", format!("[{one},{one}]").into_bytes(), "batch"),
            (
                "after white space",
                format!(" \r\n[{one}]").into_bytes(),
                "batch",
            ),
        ],
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn positional_params_reach_the_node_by_name() {
    let (stage, fine) = scene();
    let to = |params: &str| rpc(ID, "starknet_addInvokeTransaction", params);
    let text = &fine.text;
    for (what, params) in [
        ("none", "[]".to_owned()),
        ("two", format!("[{text},{text}]")),
        ("a null after it", format!("[{text},null]")),
        ("an empty object", "{}".into()),
        (
            "the other method's name",
            format!(r#"{{"deploy_account_transaction":{text}}}"#),
        ),
        ("no object", "[\"0x1\"]".into()),
        ("null", "null".into()),
        ("a text", "\"0x1\"".into()),
    ] {
        let answer = stage.post("/rpc", to(&params));
        rpc_refused(&answer, "invalid_request", ID, what);
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    submitted(
        &stage.post("/rpc", to(&format!("[{text}]"))),
        fine.hash,
        "by position",
    );
    let sent = stage.adds().remove(0).json();
    assert!(
        sent["params"]["invoke_transaction"].is_object(),
        "by name: {sent}"
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn bad_ids_and_versions_are_refused() {
    let (stage, fine) = scene();
    for (what, from, to, id) in [
        ("a notification", r#","id":7"#, "", "null"),
        ("null", r#""id":7"#, r#""id":null"#, "null"),
        ("an object", r#""id":7"#, r#""id":{}"#, "null"),
        ("an array", r#""id":7"#, r#""id":[7]"#, "null"),
        ("a flag", r#""id":7"#, r#""id":true"#, "null"),
        ("version 1.0", r#""2.0""#, r#""1.0""#, ID),
        ("version 2 as a number", r#""2.0""#, "2.0", ID),
        ("no version", r#""jsonrpc":"2.0","#, "", ID),
    ] {
        let answer = stage.post("/rpc", fine.bent(from, to));
        rpc_refused(&answer, "invalid_request", id, what);
    }
    for number in ["9223372036854775808", "1.5", "1e300", "-0"] {
        // a numeric id is returned as it was written, without rounding
        let body = rpc(number, "starknet_call", "[]");
        rpc_refused(
            &stage.post("/rpc", body),
            "method_not_allowed",
            number,
            number,
        );
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    stage.assert_passes(&fine);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_body_must_be_one_json_text() {
    let (stage, fine) = scene();
    let one = fine.body();
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let bytes = |text: String| text.into_bytes();
    let mut latin1 = fine.bent(r#""id":7"#, r#""id":"x""#);
    let at = latin1.iter().position(|byte| *byte == b'x').unwrap();
    latin1[at] = 0xe9;
    stage.assert_tricks(
        &fine,
        &[
            ("nothing at all but a space", b" ".to_vec(), "parse_error"),
            (
                "a byte order mark",
                bytes(format!("\u{feff}{one}")),
                "parse_error",
            ),
            ("more after it", bytes(format!("{one}{one}")), "parse_error"),
            ("a zero after it", bytes(format!("{one}\0")), "parse_error"),
            (
                "cut short",
                bytes(one[..one.len() - 1].to_owned()),
                "parse_error",
            ),
            ("200 levels", fine.bent(r#""0x1""#, &deep), "parse_error"),
            (
                "a lone surrogate",
                fine.bent("0x1", r"\ud800"),
                "parse_error",
            ),
            (
                "a comment",
                fine.bent(r#""id""#, r#"/**/"id""#),
                "parse_error",
            ),
            (
                "a comma too many",
                fine.bent(r#""0x1""#, r#""0x1",,"#),
                "parse_error",
            ),
            ("not UTF-8", latin1, "parse_error"),
        ],
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_body_must_be_declared_as_json() {
    let (stage, fine) = scene();
    let plain = || post("/rpc", fine.body()).without("Content-Type");
    let typed = |media_type: &str| plain().with("Content-Type", media_type);
    for (what, request, reason) in [
        ("no type", plain(), "unsupported_media_type"),
        (
            "JSON:API",
            typed("application/vnd.api+json"),
            "unsupported_media_type",
        ),
        ("text", typed("text/plain"), "unsupported_media_type"),
        (
            "a form",
            typed("application/x-www-form-urlencoded"),
            "unsupported_media_type",
        ),
        (
            "two types",
            typed("application/json").with("Content-Type", "text/plain"),
            { "unsupported_media_type" },
        ),
        (
            "a coding",
            typed("application/json").with("Content-Encoding", "gzip"),
            { "unsupported_encoding" },
        ),
    ] {
        rpc_refused(&stage.ask(&request), reason, "7", what);
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    let answer = stage.ask(&typed("Application/JSON; charset=utf-8"));
    submitted(&answer, fine.hash, "a charset and capitals change nothing");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn an_unlisted_method_is_refused() {
    let (stage, fine) = scene();
    let methods = [
        "starknet_addDeclareTransaction",
        "starknet_addinvoketransaction",
        "starknet_addInvokeTransaction ",
        " starknet_addInvokeTransaction",
        "starknet_addInvokeTransaction\\u0000",
        "starknet_call",
        "starknet_estimateFee",
        "starknet_proveTransaction",
        "devnet_mint",
        "devnet_impersonateAccount",
        "",
    ];
    let real = "starknet_addInvokeTransaction";
    let tricks = methods.map(|method| (method, fine.bent(real, method), "method_not_allowed"));
    stage.assert_tricks(&fine, &tricks);
    let answer = stage.ask(&authorised(crate::support::request::Request::post(rpc(
        ID, real, "[]",
    ))));
    rpc_refused(
        &answer,
        "invalid_request",
        ID,
        "the method alone is not enough",
    );
}
