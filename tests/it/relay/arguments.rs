//! Argument rules of each allowed entrypoint: values that pass and values that fail.
//!
//! The transactions carry valid signatures, so that only the argument can cause a refusal.

use portcullis_filters::felt::Felt;

use crate::support::check::each;
use crate::support::relay::chain::{USER_KEY, honest, is_add, took};
use crate::support::relay::expect::{rpc_refused, submitted};
use crate::support::relay::stage::Stage;
use crate::support::relay::user::{ID, User, call};

/// Contract, entrypoint, arguments, and whether the relay accepts them.
type Row = (&'static str, &'static str, &'static [&'static str], bool);

const LIMB: &str = "0x100000000000000000000000000000000";
const TOP_LIMB: &str = "0xffffffffffffffffffffffffffffffff";
const NO_ADDRESS: &str = "0x7ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00";
const TOP_ADDRESS: &str = "0x7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeff";
const L1: &str = "0xffffffffffffffffffffffffffffffffffffffff";
const NO_L1: &str = "0x10000000000000000000000000000000000000000";
/// The pool and the bridge of the scripted chain.
const POOL: &str = "0x201";
const BRIDGE: &str = "0x204";

const TOKEN_AND_STAKING: &[Row] = &[
    ("token", "approve", &[POOL, "0x0", "0x0"], true),
    ("token", "approve", &[BRIDGE, TOP_LIMB, TOP_LIMB], true),
    ("token", "approve", &["0x205", "0x1", "0x0"], false),
    ("token", "approve", &[POOL, LIMB, "0x0"], false),
    ("token", "approve", &[POOL, "0x1", LIMB], false),
    ("token", "approve", &[POOL, "0x1"], false),
    ("token", "approve", &[POOL, "0x1", "0x0", "0x0"], false),
    ("token", "approve", &[], false),
    (
        "staking",
        "register_validator",
        &["0x0", "0x1", "0x0"],
        true,
    ),
    (
        "staking",
        "register_validator",
        &["0x2710", "0x1", "0x0"],
        true,
    ),
    (
        "staking",
        "register_validator",
        &["0x2711", "0x1", "0x0"],
        false,
    ),
    (
        "staking",
        "register_validator",
        &["0x10000000000000001", "0x1", "0x0"],
        false,
    ),
    (
        "staking",
        "register_validator",
        &["0x1", LIMB, "0x0"],
        false,
    ),
    (
        "staking",
        "register_validator",
        &["0x1", "0x1", LIMB],
        false,
    ),
    ("staking", "register_validator", &["0x1", "0x1"], false),
    (
        "staking",
        "register_validator",
        &["0x1", "0x1", "0x0", "0x0"],
        false,
    ),
    ("staking", "increase_self_stake", &["0x1", "0x0"], true),
    ("staking", "increase_self_stake", &["0x0", "0x1"], true),
    ("staking", "increase_self_stake", &["0x0", "0x0"], false),
    ("staking", "increase_self_stake", &[LIMB, "0x0"], false),
    ("staking", "increase_self_stake", &["0x1", LIMB], false),
    ("staking", "increase_self_stake", &["0x1"], false),
    (
        "staking",
        "increase_self_stake",
        &["0x1", "0x0", "0x0"],
        false,
    ),
    ("staking", "delegate", &[TOP_ADDRESS, "0x1", "0x0"], true),
    ("staking", "delegate", &["0x0", "0x1", "0x0"], false),
    ("staking", "delegate", &[NO_ADDRESS, "0x1", "0x0"], false),
    ("staking", "delegate", &["0x9", "0x0", "0x0"], false),
    ("staking", "delegate", &["0x9", LIMB, "0x0"], false),
    ("staking", "delegate", &["0x9", "0x1"], false),
    ("staking", "delegate", &["0x9", "0x1", "0x0", "0x0"], false),
    (
        "staking",
        "request_undelegate",
        &["0x1", "0x1", "0x0"],
        true,
    ),
    (
        "staking",
        "request_undelegate",
        &["0x0", "0x1", "0x0"],
        false,
    ),
    (
        "staking",
        "request_undelegate",
        &[NO_ADDRESS, "0x1", "0x0"],
        false,
    ),
    (
        "staking",
        "request_undelegate",
        &["0x9", "0x0", "0x0"],
        false,
    ),
    ("staking", "request_undelegate", &["0x9", "0x1"], false),
    ("staking", "withdraw", &[], true),
    ("staking", "withdraw", &["0x0"], false),
    ("staking", "exit_validator", &[], true),
    ("staking", "exit_validator", &["0x0"], false),
];

const BRIDGE_AND_CARD: &[Row] = &[
    ("bridge", "bridge_out_token", &[L1, "0x1", "0x0"], true),
    ("bridge", "bridge_out_token", &["0x0", "0x1", "0x0"], false),
    ("bridge", "bridge_out_token", &[NO_L1, "0x1", "0x0"], false),
    ("bridge", "bridge_out_token", &["0x1", "0x0", "0x0"], false),
    ("bridge", "bridge_out_token", &["0x1", LIMB, "0x0"], false),
    ("bridge", "bridge_out_token", &["0x1", "0x1", LIMB], false),
    ("bridge", "bridge_out_token", &["0x1", "0x1"], false),
    (
        "bridge",
        "bridge_out_token",
        &["0x1", "0x1", "0x0", "0x0"],
        false,
    ),
    ("bridge", "bridge_out_card", &["0x1", "0x0", "0x0"], true),
    ("bridge", "bridge_out_card", &["0x0", "0x1", "0x0"], false),
    ("bridge", "bridge_out_card", &[NO_L1, "0x1", "0x0"], false),
    ("bridge", "bridge_out_card", &["0x1", LIMB, "0x0"], false),
    ("bridge", "bridge_out_card", &["0x1", "0x1", LIMB], false),
    ("bridge", "bridge_out_card", &["0x1", "0x1"], false),
    (
        "bridge",
        "bridge_out_card",
        &["0x1", "0x1", "0x0", "0x0"],
        false,
    ),
    ("card", "transfer", &[TOP_ADDRESS, TOP_LIMB, TOP_LIMB], true),
    ("card", "transfer", &["0x0", "0x1", "0x0"], false),
    ("card", "transfer", &[NO_ADDRESS, "0x1", "0x0"], false),
    ("card", "transfer", &["0x9", LIMB, "0x0"], false),
    ("card", "transfer", &["0x9", "0x1", LIMB], false),
    ("card", "transfer", &["0x9", "0x1"], false),
    ("card", "transfer", &["0x9", "0x1", "0x0", "0x0"], false),
    ("card", "burn", &["0x0", "0x0"], true),
    ("card", "burn", &[LIMB, "0x0"], false),
    ("card", "burn", &["0x1", LIMB], false),
    ("card", "burn", &["0x1"], false),
    ("card", "burn", &["0x1", "0x0", "0x0"], false),
];

/// Submits each row and checks the outcome. The node responds with the hash that the test computed
/// in advance.
fn assert_rules(rows: &'static [Row]) {
    let user = User::with_key(USER_KEY);
    let sign = |stage: &Stage, nonce: u64, (contract, entrypoint, args, _): &Row| {
        let args: Vec<_> = args.iter().map(|arg| Felt::parse(arg).unwrap()).collect();
        user.invoke(&[call(stage.pin(contract), entrypoint, &args)], nonce)
    };
    let known = std::sync::Arc::new(std::sync::Mutex::new(Felt::ZERO));
    let hash = std::sync::Arc::clone(&known);
    let script = move |call: &crate::support::node::Call| {
        if is_add(call) {
            took(call, *hash.lock().unwrap())
        } else {
            honest(call)
        }
    };
    let stage = Stage::with_script(script, &[]);
    each(rows.iter().enumerate(), |(at, row)| {
        let before = stage.adds().len();
        let nonce = u64::try_from(at).unwrap();
        let signed = sign(&stage, nonce, row);
        *known.lock().unwrap() = signed.hash;
        let answer = stage.post("/rpc", signed.body());
        let why = format!("{row:?}");
        if row.3 {
            submitted(&answer, signed.hash, &why);
            assert_eq!(stage.adds().len(), before + 1, "{why}: it reaches the node");
        } else {
            rpc_refused(&answer, "argument_not_allowed", ID, &why);
            assert_eq!(
                stage.adds().len(),
                before,
                "{why}: it does not reach the node"
            );
        }
    });
}

#[test]
fn the_arguments_of_the_token_and_the_pool() {
    assert_rules(TOKEN_AND_STAKING);
}

#[test]
fn the_arguments_of_the_bridge_and_the_cards() {
    assert_rules(BRIDGE_AND_CARD);
}
