//! Which transactions of users pass: a row for each trick that a node falls for.

use crate::support::{
    CLASS, account, bounds, burn, call, contracts, felts, hex, invoke, judge, judge_by, key,
    policy, reason, request, sender,
};
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{Endpoint, Inspected, RelayPolicy, method_of};
use portcullis_filters::tx::{Account, Bounds, DeployAccount, Invoke, Transaction};
use portcullis_filters::verdict::Reason::{self, *};

/// The prime, which a node takes for zero.
const PRIME: &str = "0x800000000000011000000000000000000000000000000000000000000000001";

/// The verdict on a valid request with one `from` replaced by `to`.
fn with(from: &str, to: &str) -> Result<(), Reason> {
    let body = request(invoke(vec![burn()]));
    assert!(body.contains(from), "{from} is in {body}");
    reason(&body.replacen(from, to, 1))
}

#[test]
fn a_good_transaction_is_permitted() {
    let transaction = invoke(vec![burn()]);
    let body = request(transaction.clone());
    let permit = judge(&body).expect("it is good");
    assert_eq!(permit.hash(), transaction.hash(policy().chain_id));
    assert_eq!(
        (permit.sender(), permit.nonce(), permit.is_deploy()),
        (sender(), 3, false)
    );
    let calls: Vec<_> = permit
        .calls()
        .iter()
        .map(|call| call.call().clone())
        .collect();
    assert_eq!(calls, [burn()]);
    let allowed = &permit.calls()[0];
    assert_eq!(
        (allowed.contract().name(), allowed.entrypoint().name()),
        ("card", "burn")
    );
    assert_eq!(permit.method(), "starknet_addInvokeTransaction");
    assert_eq!((permit.kind(), permit.id().as_str()), ("invoke", "1"));
}

#[test]
fn duplicate_and_unknown_members_are_refused() {
    for (from, to) in [
        ("\"tip\":\"0x0\"", "\"tip\":\"0x0\",\"tip\":\"0x0\""),
        ("\"tip\":\"0x0\"", "\"tip\":\"0x0\",\"t\\u0069p\":\"0x5\""),
        ("\"calldata\":", "\"calldata\":[],\"calldata\":"),
        (
            "\"version\":\"0x3\"",
            "\"version\":\"0x3\",\"version\":\"0x3\"",
        ),
        ("\"params\":{", "\"params\":{\"invoke_transaction\":{},"),
        ("\"max_amount\":", "\"max_amount\":\"0x1\",\"max_amount\":"),
        ("\"l1_gas\":", "\"l1_gas\":{},\"l1_gas\":"),
        ("\"params\":", "\"params\":{},\"params\":"),
        (
            "\"method\":",
            "\"m\\u0065thod\":\"starknet_getNonce\",\"method\":",
        ),
        ("\"params\":", "\"x\":1,\"params\":"),
        ("\"params\":{", "\"params\":{\"x\":1,"),
        ("\"tip\":", "\"x\":1,\"tip\":"),
        ("\"tip\":", "\"class_hash\":\"0x1\",\"tip\":"),
        ("\"l1_gas\":", "\"x\":1,\"l1_gas\":"),
        ("\"max_amount\":", "\"x\":1,\"max_amount\":"),
    ] {
        assert_eq!(with(from, to), Err(InvalidRequest), "{to}");
    }
}

#[test]
fn escapes_zeros_and_case_change_nothing() {
    let transaction = invoke(vec![burn()]);
    let body = request(transaction.clone());
    for (from, to) in [
        ("\"method\":", "\"m\\u0065thod\":"),
        ("starknet_add", "starknet_\\u0061dd"),
        ("\"tip\":", "\"t\\u0069p\":"),
        ("\"tip\":\"0x0\"", "\"tip\":\"0x00\""),
        (
            "\"0x7\"",
            "\"0x0000000000000000000000000000000000000000000000000000000000000007\"",
        ),
        ("\"max_amount\":\"0x3f0\"", "\"max_amount\":\"0x003F0\""),
    ] {
        assert!(body.contains(from), "{from} is in {body}");
        let other = body.replacen(from, to, 1);
        let permit = judge(&other).expect(to);
        assert_eq!(permit.hash(), transaction.hash(policy().chain_id), "{to}");
        assert_eq!(
            permit.params(),
            judge(&body).expect("good").params(),
            "{to}"
        );
    }
}

#[test]
fn felts_that_nodes_read_differently_are_refused() {
    let more = "0x800000000000011000000000000000000000000000000000000000000000002";
    let long = format!("0x0{}7", "0".repeat(63));
    for value in [
        PRIME, more, &long, "7", "0X7", "0x0x7", "0x", "", " 0x7", "0x+7", "-0x7",
    ] {
        let to = format!("\"{value}\"");
        assert_eq!(
            with("\"0x7\"", &to),
            Err(InvalidRequest),
            "a felt {value:?}"
        );
        assert_eq!(
            with("\"0x3f0\"", &to),
            Err(InvalidRequest),
            "an amount {value:?}"
        );
        let tip = format!("\"tip\":{to}");
        assert_eq!(
            with("\"tip\":\"0x0\"", &tip),
            Err(InvalidRequest),
            "a tip {value:?}"
        );
    }
    for value in ["7", "0", "null", "true", "[]", "{}", "7.0"] {
        assert_eq!(
            with("\"0x7\"", value),
            Err(InvalidRequest),
            "a felt {value}"
        );
        assert_eq!(
            with("\"0x3f0\"", value),
            Err(InvalidRequest),
            "an amount {value}"
        );
        let tip = format!("\"tip\":{value}");
        assert_eq!(
            with("\"tip\":\"0x0\"", &tip),
            Err(InvalidRequest),
            "a tip {value}"
        );
    }
    let over = [
        ("\"0x3f0\"", "\"0x10000000000000000\""),
        ("\"tip\":\"0x0\"", "\"tip\":\"0x10000000000000000\""),
    ];
    for (from, to) in over.into_iter().chain([
        ("\"0x3e8\"", "\"0x100000000000000000000000000000000\""),
        ("\"nonce\":\"0x3\"", "\"nonce\":\"0x10000000000000000\""),
        ("\"tip\":\"0x0\",", ""),
        ("\"paymaster_data\":[]", "\"paymaster_data\":\"\""),
        ("\"paymaster_data\":[],", ""),
        ("\"account_deployment_data\":[],", ""),
        ("\"l1_gas\"", "\"L1_GAS\""),
        ("\"type\":\"INVOKE\"", "\"type\":\"invoke\""),
        ("\"type\":\"INVOKE\"", "\"type\":\"DECLARE\""),
    ]) {
        assert_eq!(with(from, to), Err(InvalidRequest), "{to}");
    }
}

#[test]
fn unused_fields_are_refused_with_a_reason() {
    let version = "\"version\":\"0x3\"";
    let mode = "\"fee_data_availability_mode\":\"L1\"";
    for (from, to, expected) in [
        (
            version,
            "\"version\":\"0x100000000000000000000000000000003\"",
            TransactionVersion,
        ),
        (version, "\"version\":\"0x03\"", TransactionVersion),
        (
            version,
            "\"version\":\"0x1\",\"max_fee\":\"0x1\"",
            TransactionVersion,
        ),
        (version, "\"version\":\"0x4\"", TransactionVersion),
        (version, "\"version\":\"\"", TransactionVersion),
        (version, "\"version\":3", InvalidRequest),
        (version, "\"version\":null", InvalidRequest),
        ("\"version\":\"0x3\",", "", InvalidRequest),
        ("\"tip\":\"0x0\"", "\"tip\":\"0x5\"", TipNotZero),
        (
            "\"paymaster_data\":[]",
            "\"paymaster_data\":[\"0x1\"]",
            PaymasterData,
        ),
        (
            "\"account_deployment_data\":[]",
            "\"account_deployment_data\":[\"0x0\"]",
            AccountDeploymentData,
        ),
        (
            mode,
            "\"fee_data_availability_mode\":\"L2\"",
            DataAvailabilityMode,
        ),
        (
            "\"nonce_data_availability_mode\":\"L1\"",
            "\"nonce_data_availability_mode\":\"L2\"",
            DataAvailabilityMode,
        ),
        (mode, "\"fee_data_availability_mode\":0", InvalidRequest),
        (
            mode,
            "\"fee_data_availability_mode\":\"l1\"",
            InvalidRequest,
        ),
        ("\"tip\":", "\"proof\":\"\",\"tip\":", ProofData),
        ("\"tip\":", "\"proof\":[],\"tip\":", ProofData),
        ("\"tip\":", "\"proof\":\"AAAA\",\"tip\":", ProofData),
        ("\"tip\":", "\"proof_facts\":[],\"tip\":", ProofData),
        ("\"tip\":", "\"proof_facts\":null,\"tip\":", ProofData),
        (
            "\"tip\":",
            "\"pro\\u006ff_facts\":[\"0x1\"],\"tip\":",
            ProofData,
        ),
    ] {
        assert_eq!(with(from, to), Err(expected), "{to}");
    }
}

#[test]
fn only_two_methods_are_accepted() {
    let body = request(invoke(vec![burn()]));
    let params = body.find("\"params\":").expect("params") + 9;
    let transaction = &body[params + 22..body.len() - 2];
    let positional = |list: &str| format!("{}{list}}}", &body[..params]);
    assert_eq!(
        reason(&positional(&format!("[{transaction}]"))),
        Ok(()),
        "by position"
    );
    for (what, body, expected) in [
        ("an array", format!("[{body}]"), Batch),
        (
            "two parameters",
            positional(&format!("[{transaction},{transaction}]")),
            InvalidRequest,
        ),
        ("no parameter", positional("[]"), InvalidRequest),
        (
            "no parameters",
            body[..params - 10].to_owned() + "}",
            InvalidRequest,
        ),
        (
            "a number for a transaction",
            positional("[1]"),
            InvalidRequest,
        ),
        (
            "a number for a transaction",
            positional("{\"invoke_transaction\":1}"),
            InvalidRequest,
        ),
        ("trailing text", format!("{body}x"), ParseError),
        ("a byte order mark", format!("\u{feff}{body}"), ParseError),
        ("depth", positional(&"[".repeat(200)), ParseError),
        ("no id", body.replacen("\"id\":1,", "", 1), InvalidRequest),
        (
            "no useful id",
            body.replacen("\"id\":1,", "\"id\":null,", 1),
            InvalidRequest,
        ),
        (
            "version 1.0",
            body.replacen("2.0", "1.0", 1),
            InvalidRequest,
        ),
        (
            "64 KiB and more",
            format!("{body}{}", " ".repeat(65_536)),
            BodyTooLarge,
        ),
    ] {
        assert_eq!(reason(&body), Err(expected), "{what}");
    }
    for method in [
        "starknet_addinvokeTransaction",
        "starknet_addInvokeTransaction ",
        "starknet_addDeclareTransaction",
        "starknet_getNonce",
        "devnet_mint",
        "devnet_impersonateAccount",
        "",
    ] {
        let body = body.replacen("starknet_addInvokeTransaction", method, 1);
        assert_eq!(reason(&body), Err(MethodNotAllowed), "{method}");
    }
    let other = "starknet_addDeployAccountTransaction";
    let body = body.replacen("starknet_addInvokeTransaction", other, 1);
    assert_eq!(
        reason(&body),
        Err(InvalidRequest),
        "the other method's parameter"
    );
    let body = body.replacen("invoke_transaction", "deploy_account_transaction", 1);
    assert_eq!(
        reason(&body),
        Err(InvalidRequest),
        "the other method's type"
    );
}

#[test]
fn a_refusal_answers_the_request_s_id() {
    let refusal = judge(r#"{"jsonrpc":"2.0","id":"a","method":"x"}"#).expect_err("no such method");
    assert_eq!(refusal.id.as_deref(), Some("\"a\""));
    let body = request(invoke(vec![burn()])).replacen("\"0x3\"", "\"0x4\"", 1);
    assert_eq!(judge(&body).expect_err("bad").id.as_deref(), Some("1"));
    let body = request(invoke(vec![burn(), burn()])).replacen("\"id\":1", "\"id\":7.50", 1);
    let unsigned = body.replacen("\"signature\":[", "\"signature\":[\"0x1\",", 1);
    let refusal = judge(&unsigned).expect_err("three numbers");
    assert_eq!(
        (refusal.reason, refusal.id.as_deref()),
        (SignatureInvalid, Some("7.50"))
    );
}

#[test]
fn count_and_size_of_calls_are_bounded() {
    let many = |count: usize| reason(&request(invoke(vec![burn(); count])));
    assert_eq!(many(8), Ok(()));
    assert_eq!(many(9), Err(TooManyCalls));
    assert_eq!(many(0), Err(CalldataMalformed), "no call at all");
    assert_eq!(many(51), Err(TooManyCalls), "256 felts, which are read");
    assert_eq!(many(60), Err(CalldataTooLarge), "301 felts");
    let count = "\"calldata\":[\"0x1\"";
    for (to, expected) in [
        ("\"calldata\":[\"0x2\"", CalldataMalformed),
        ("\"calldata\":[\"0x0\"", CalldataMalformed),
        ("\"calldata\":[\"0x100000000\"", TooManyCalls),
        ("\"calldata\":[\"0x10000000000000000\"", TooManyCalls),
    ] {
        assert_eq!(with(count, to), Err(expected), "{to}");
    }
    assert_eq!(
        with("\"0x2\",\"0x7\"", "\"0x3\",\"0x7\""),
        Err(CalldataMalformed),
        "too short"
    );
    assert_eq!(
        with("\"0x7\",\"0x0\"]", "\"0x7\",\"0x0\",\"0x0\"]"),
        Err(CalldataMalformed)
    );
    assert_eq!(
        with("\"0x2\",\"0x7\"", "\"0x10000000000000000\",\"0x7\""),
        Err(CalldataMalformed)
    );
}

#[test]
fn the_form_of_cairo_0_accounts_is_refused() {
    let calldata = r#""calldata":["0x1","0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d","0x219209e083275171774dab1df80982e9df2096516f06319c5c6d71ae0a8480c","0x0","0x3","0x3","0x1234","0x1","0x0"]"#;
    let body = request(invoke(vec![burn()]));
    let start = body.find("\"calldata\"").expect("calldata");
    let end = start + body[start..].find(']').expect("its end") + 1;
    let body = format!("{}{calldata}{}", &body[..start], &body[end..]);
    assert_eq!(reason(&body), Err(CalldataMalformed));
}

#[test]
fn gas_and_fee_are_bounded() {
    let with = |bounds| {
        let invoke = Invoke {
            sender: sender(),
            calls: vec![burn()],
            nonce: Felt::ZERO,
            bounds,
        };
        reason(&request(invoke.into()))
    };
    let fee = 10_000_000_000_000_000_000;
    for (what, bounds, expected) in [
        (
            "the most gas",
            Bounds {
                l2_gas: (1_000_000_000, 1),
                ..Bounds::ZERO
            },
            Ok(()),
        ),
        (
            "more gas",
            Bounds {
                l2_gas: (1_000_000_001, 0),
                ..Bounds::ZERO
            },
            Err(FeeBoundExceeded),
        ),
        (
            "the highest fee",
            Bounds {
                l1_gas: (1, fee),
                ..Bounds::ZERO
            },
            Ok(()),
        ),
        (
            "a higher fee",
            Bounds {
                l1_gas: (1, fee),
                l1_data_gas: (1, 1),
                ..Bounds::ZERO
            },
            Err(FeeBoundExceeded),
        ),
        (
            "a fee beyond numbers",
            Bounds {
                l1_gas: (u64::MAX, u128::MAX),
                ..bounds()
            },
            Err(FeeBoundExceeded),
        ),
        (
            "nothing, which is the node's to refuse",
            Bounds::ZERO,
            Ok(()),
        ),
    ] {
        assert_eq!(with(bounds), expected, "{what}");
    }
}

/// The order of the curve less `s`.
fn negated(s: Felt) -> Felt {
    let order = [
        0x0800_0000_0000_0010,
        u64::MAX,
        0xb781_126d_cae7_b232,
        0x1e66_a241_adc6_4d2f,
    ];
    let mut borrow = false;
    let mut limbs = [0; 4];
    for (at, (n, s)) in order.into_iter().zip(s.limbs()).enumerate().rev() {
        let (less, under) = n.overflowing_sub(s);
        let (limb, again) = less.overflowing_sub(u64::from(borrow));
        (limbs[at], borrow) = (limb, under || again);
    }
    Felt::from_limbs(limbs).expect("below the order")
}

#[test]
fn only_the_account_s_key_signs() {
    let transaction = invoke(vec![burn()]);
    let hash = transaction.hash(policy().chain_id);
    let [r, s] = key().sign(hash);
    let body = request(transaction);
    let signed = format!("\"signature\":[\"{r}\",\"{s}\"]");
    assert!(body.contains(&signed));
    let other = body.replacen(
        &signed,
        &format!("\"signature\":[\"{r}\",\"{}\"]", negated(s)),
        1,
    );
    assert_eq!(judge(&other).expect("the other form").hash(), hash);
    for signature in [
        String::new(),
        format!("\"{r}\""),
        format!("\"{r}\",\"{s}\",\"{s}\""),
        format!("\"{s}\",\"{r}\""),
        format!("\"0x0\",\"{s}\""),
        format!("\"{r}\",\"0x0\""),
        "\"0x1\",\"0x1\"".to_owned(),
    ] {
        let body = body.replacen(&signed, &format!("\"signature\":[{signature}]"), 1);
        assert_eq!(reason(&body), Err(SignatureInvalid), "[{signature}]");
    }
    let changed = body.replacen("\"nonce\":\"0x3\"", "\"nonce\":\"0x4\"", 1);
    assert_eq!(
        reason(&changed),
        Err(SignatureInvalid),
        "another transaction"
    );
    let chain_id = Felt::from_short_string("SN_MAIN").expect("a short string");
    let elsewhere = RelayPolicy {
        chain_id,
        ..policy()
    };
    let refusal = judge_by(&elsewhere, &body).expect_err("signed for another chain");
    assert_eq!(refusal.reason, SignatureInvalid);
}

#[test]
fn the_account_has_the_approved_class() {
    let body = request(invoke(vec![burn()]));
    let policy = policy();
    for (what, account, expected) in [
        ("the account", Some(account()), Ok(())),
        (
            "another class",
            Some(Account {
                class_hash: Felt::ZERO,
                ..account()
            }),
            Err(ClassNotApproved),
        ),
        (
            "another key",
            Some(Account {
                public_key: hex("0x1"),
                ..account()
            }),
            Err(SignatureInvalid),
        ),
        (
            "no key",
            Some(Account {
                public_key: Felt::ZERO,
                ..account()
            }),
            Err(SignatureInvalid),
        ),
        ("nothing there", None, Err(ClassNotApproved)),
    ] {
        let inspected = policy
            .inspect(Endpoint::Rpc, body.as_bytes(), 0)
            .expect("it is good");
        let Inspected::Transaction(unverified) = inspected else {
            panic!("{inspected:?}")
        };
        assert_eq!(unverified.sender(), Some(sender()));
        assert_eq!((unverified.kind(), unverified.deployed()), ("invoke", None));
        let verdict = unverified.verify(&policy, account).map(drop);
        assert_eq!(
            verdict.map_err(|refusal| refusal.reason),
            expected,
            "{what}"
        );
    }
}

#[test]
fn what_is_not_admitted_is_verified_all_the_same() {
    let mut narrower = policy();
    narrower.caps.max_fee = 1;
    for transaction in [invoke(vec![burn()]), deploy()] {
        let signed = request(transaction);
        let (head, signature) = signed.split_once(r#""signature":["#).expect("it has one");
        let (_, second) = signature.split_once(',').expect("it has two felts");
        let altered = format!(r#"{head}"signature":["0x1",{second}"#);
        for (body, expected) in [(&signed, Ok(())), (&altered, Err(SignatureInvalid))] {
            let inspected = narrower.inspect(Endpoint::Rpc, body.as_bytes(), 0);
            let Ok(Inspected::Transaction(unverified)) = inspected else {
                panic!("{inspected:?}")
            };
            let refused = unverified.admission().expect_err("the fee is too high");
            assert_eq!(refused.reason, FeeBoundExceeded);
            assert_eq!(refused.id.as_deref(), Some("1"));
            let verified = unverified.verify(&narrower, Some(account()));
            let found = verified.map(|permit| permit.admission().is_ok());
            let expected = expected.map(|()| false);
            assert_eq!(found.map_err(|refusal| refusal.reason), expected);
        }
    }
}

fn deploy() -> Transaction {
    let (class_hash, public_key) = (hex(CLASS), key().public_key());
    DeployAccount {
        class_hash,
        public_key,
        bounds: bounds(),
    }
    .into()
}

#[test]
fn an_account_deploys_at_its_key_s_address() {
    let body = request(deploy());
    let inspected = policy()
        .inspect(Endpoint::Rpc, body.as_bytes(), 0)
        .expect("it is good");
    let Inspected::Transaction(unverified) = inspected else {
        panic!("{inspected:?}")
    };
    assert_eq!(
        (unverified.sender(), unverified.deployed()),
        (None, Some(sender()))
    );
    assert_eq!(unverified.id().as_str(), "1");
    assert_eq!(unverified.hash(), deploy().hash(policy().chain_id));
    assert_eq!(unverified.kind(), "deploy-account");
    let permit = unverified
        .verify(&policy(), None)
        .expect("its key signed it");
    assert_eq!(
        (permit.sender(), permit.nonce(), permit.calls()),
        (sender(), 0, &[][..])
    );
    assert_eq!(permit.method(), "starknet_addDeployAccountTransaction");
    assert_eq!(
        (permit.kind(), method_of(permit.kind())),
        ("deploy-account", permit.method())
    );
}

#[test]
fn a_deployment_of_anything_else_is_refused() {
    let public_key = key().public_key();
    let member = |name: &str, value: Felt| format!("\"{name}\":\"{value}\"");
    let constructor = format!("\"constructor_calldata\":[\"{public_key}\"]");
    let salt = member("contract_address_salt", public_key);
    let class = member("class_hash", hex(CLASS));
    for (what, from, to, expected) in [
        (
            "another class",
            class,
            member("class_hash", hex("0x1")),
            ClassNotApproved,
        ),
        (
            "another salt",
            salt,
            member("contract_address_salt", hex("0x1")),
            AddressMismatch,
        ),
        (
            "another key",
            constructor.clone(),
            "\"constructor_calldata\":[\"0x1\"]".into(),
            AddressMismatch,
        ),
        (
            "no key",
            constructor.clone(),
            "\"constructor_calldata\":[]".into(),
            AddressMismatch,
        ),
        (
            "more than a key",
            constructor.clone(),
            constructor.replace(']', ",\"0x0\"]"),
            AddressMismatch,
        ),
        (
            "another nonce",
            "\"nonce\":\"0x0\"".into(),
            "\"nonce\":\"0x1\"".into(),
            ArgumentNotAllowed,
        ),
        (
            "a tip",
            "\"tip\":\"0x0\"".into(),
            "\"tip\":\"0x1\"".into(),
            TipNotZero,
        ),
        (
            "a field of invokes",
            "\"tip\":".into(),
            "\"account_deployment_data\":[],\"tip\":".into(),
            InvalidRequest,
        ),
        (
            "another signature",
            "\"signature\":[\"0x".into(),
            "\"signature\":[\"0x1\",\"0x".into(),
            SignatureInvalid,
        ),
    ] {
        let body = request(deploy());
        assert!(body.contains(&from), "{from} is in {body}");
        assert_eq!(
            reason(&body.replacen(&from, &to, 1)),
            Err(expected),
            "{what}"
        );
    }
    // no point has the abscissa 5, and one has 1
    for (other, expected) in [
        ("0x0", PublicKeyInvalid),
        ("0x5", PublicKeyInvalid),
        ("0x1", SignatureInvalid),
    ] {
        let body = request(deploy()).replace(&public_key.to_string(), other);
        assert_eq!(reason(&body), Err(expected), "key {other}");
    }
}

#[test]
fn an_account_calls_pinned_contracts_only() {
    for entrypoint in ["upgrade", "set_public_key", "__execute__", "burn"] {
        let calls = vec![burn(), call(sender(), entrypoint, &felts(&[1]))];
        assert_eq!(
            reason(&request(invoke(calls))),
            Err(ContractNotAllowed),
            "{entrypoint}"
        );
    }
    let deployer = hex("0x2ceed65a4bd731034c01113685c831b01c15d7d432f71afb1cf1634b53a2125");
    for (to, entrypoint) in [(deployer, "deployContract"), (Felt::ZERO, "burn")] {
        let calls = vec![call(to, entrypoint, &felts(&[7, 0]))];
        assert_eq!(
            reason(&request(invoke(calls))),
            Err(ContractNotAllowed),
            "{entrypoint}"
        );
    }
    // a pinned contract may not call itself either
    let body =
        request(invoke(vec![burn()])).replace(&sender().to_string(), &contracts().card.to_string());
    assert_eq!(reason(&body), Err(ContractNotAllowed));
}
