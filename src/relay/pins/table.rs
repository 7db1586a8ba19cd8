//! The table of pins: what each one reads, and what it must find there.

use super::{Pin, V2};
use crate::node::chain::{Chain, RpcError};
use crate::relay::settings::{Account, Pins};
use crate::telemetry::Metrics;
use futures_util::future::join_all;
use portcullis_filters::felt::Felt;
use portcullis_filters::tx::selector;

/// The API versions whose shapes this relay knows.
const SPEC: &str = "0.10.";

/// What a pin reads.
enum Read {
    ChainId,
    SpecVersion,
    /// The class of the contract at an address.
    Class(Felt),
    /// What a view of a contract returns.
    View(Felt, &'static str, Vec<Felt>),
    /// The token balance of an account, which must be no less than expected.
    Balance(Account),
    /// Nothing: it is known without the chain.
    Known(String),
}

struct Row {
    name: &'static str,
    expected: String,
    read: Read,
}

/// Reads every pin, all at once.
pub(super) async fn read(pins: &Pins, chain: &Chain, metrics: &Metrics) -> Vec<Pin> {
    let rows = rows(pins);
    join_all(rows.into_iter().map(|row| compare(row, pins, chain, metrics))).await
}

/// Every pin, as far as it is known without the chain.
pub(super) fn unreadable(pins: &Pins) -> Vec<Pin> {
    let pin = |Row { name, expected, read }| match read {
        Read::Known(actual) => Pin { name, ok: actual == expected, expected, actual },
        _ => not_read(name, expected),
    };
    rows(pins).into_iter().map(pin).collect()
}

fn not_read(name: &'static str, expected: String) -> Pin {
    Pin { name, expected, actual: "unreadable".into(), ok: false }
}

fn rows(pins: &Pins) -> Vec<Row> {
    let mut rows = vec![
        row("chain_id", pins.chain_id_text.clone(), Read::ChainId),
        row("spec_version", format!("{SPEC}*"), Read::SpecVersion),
    ];
    rows.extend(registry(pins));
    rows.extend(accounts(pins));
    for (name, contract) in [
        ("token_class", pins.token),
        ("registry_class", pins.registry),
        ("staking_class", pins.staking),
        ("card_class", pins.card),
        ("usership_class", pins.usership),
        ("bridge_class", pins.bridge),
    ] {
        rows.push(row(name, contract.class.to_string(), Read::Class(contract.address)));
    }
    rows.extend(wiring(pins));
    rows
}

fn registry(pins: &Pins) -> Vec<Row> {
    let view = |name, view, expected: String, args| {
        row(name, expected, Read::View(pins.registry.address, view, args))
    };
    let none = Vec::new;
    vec![
        view(V2, "verification_v2_required", yes(), none()),
        view("account_class", "account_class_hash", pins.account_class.to_string(), none()),
        view("registry_owner", "owner", pins.owner.address.to_string(), none()),
        view("registry_verifier", "verifier", pins.verifier.address.to_string(), none()),
        view("verifier_authorised", "is_authorised_verifier", yes(), vec![pins.verifier.address]),
        view("owner_is_not_a_verifier", "is_authorised_verifier", no(), vec![pins.owner.address]),
        row("owner_and_verifier_keys", "different".into(), {
            let same = pins.owner.public_key == pins.verifier.public_key;
            Read::Known(if same { "the same" } else { "different" }.into())
        }),
    ]
}

fn accounts(pins: &Pins) -> Vec<Row> {
    let mut rows = Vec::new();
    for account in pins.accounts() {
        let [class, key, balance] = match account.role {
            "owner" => ["owner_class", "owner_key", "owner_balance"],
            "verifier" => ["verifier_class", "verifier_key", "verifier_balance"],
            _ => ["faucet_class", "faucet_key", "faucet_balance"],
        };
        let address = account.address;
        rows.push(row(class, pins.account_class.to_string(), Read::Class(address)));
        let read = Read::View(address, "get_public_key", Vec::new());
        rows.push(row(key, account.public_key.to_string(), read));
        rows.push(row(balance, pins.minimum_balance.to_string(), Read::Balance(account)));
    }
    rows
}

fn wiring(pins: &Pins) -> Vec<Row> {
    let [owner, verifier] = [pins.owner, pins.verifier].map(|account| account.address.to_string());
    let [token, registry, staking, card, usership, bridge] =
        [pins.token, pins.registry, pins.staking, pins.card, pins.usership, pins.bridge]
            .map(|contract| contract.address);
    let view = |name, to, view, expected: String| row(name, expected, Read::View(to, view, vec![]));
    let parts = [card, staking, usership, bridge].map(|part| part.to_string()).join(" ");
    vec![
        view("registry_wiring", registry, "wiring", parts),
        view("card_owner", card, "owner", owner.clone()),
        view("card_minter", card, "minter", owner.clone()),
        view("card_registry", card, "registry", registry.to_string()),
        view("card_bridge", card, "bridge", bridge.to_string()),
        view("staking_owner", staking, "owner", owner.clone()),
        view("staking_token", staking, "token", token.to_string()),
        view("staking_registry", staking, "registry", registry.to_string()),
        view("usership_submitter", usership, "submitter", verifier),
        view("usership_registry", usership, "registry", registry.to_string()),
        view("bridge_owner", bridge, "owner", owner),
        view("bridge_token", bridge, "token", token.to_string()),
        view("bridge_card", bridge, "card", card.to_string()),
        view("bridge_l1_contract", bridge, "l1_bridge", pins.l1_bridge.to_string()),
    ]
}

fn row(name: &'static str, expected: String, read: Read) -> Row {
    Row { name, expected, read }
}

fn yes() -> String {
    "true".into()
}

fn no() -> String {
    "false".into()
}

async fn compare(row: Row, pins: &Pins, chain: &Chain, metrics: &Metrics) -> Pin {
    let Row { name, expected, read } = row;
    let at_least = matches!(read, Read::Balance(_)).then_some(pins.minimum_balance.fri());
    let actual = match actual(read, &expected, pins, chain).await {
        Ok(Actual::Text(text)) => text,
        Ok(Actual::Balance(account, fri)) => {
            metrics.relay.balance(account.role, fri);
            let ok = at_least.is_some_and(|least| fri >= least);
            let expected = format!("at least {expected}");
            return Pin { name, expected, actual: format!("{fri} fri"), ok };
        }
        Err(_) => return not_read(name, expected),
    };
    let ok = match name {
        "spec_version" => actual.starts_with(SPEC),
        _ => actual == expected,
    };
    Pin { name, expected, actual, ok }
}

enum Actual {
    Text(String),
    Balance(Account, u128),
}

async fn actual(
    read: Read,
    expected: &str,
    pins: &Pins,
    chain: &Chain,
) -> Result<Actual, RpcError> {
    Ok(Actual::Text(match read {
        Read::Known(text) => text,
        Read::ChainId => {
            let id = chain.chain_id().await?;
            id.to_short_string().unwrap_or_else(|| id.to_string())
        }
        Read::SpecVersion => chain.spec_version().await?,
        Read::Class(address) => match chain.class_hash_at(address).await? {
            Some(class) => class.to_string(),
            None => "no contract".into(),
        },
        Read::View(to, view, args) => {
            let result = chain.call(to, selector(view), &args).await?;
            text(&result, expected)
        }
        Read::Balance(account) => {
            let args = [account.address];
            let result = chain.call(pins.token.address, selector("balance_of"), &args).await?;
            return Ok(Actual::Balance(
                account,
                balance(&result).ok_or(RpcError::MalformedAnswer)?,
            ));
        }
    }))
}

/// Felts as a person reads them: a flag where a flag is expected.
fn text(result: &[Felt], expected: &str) -> String {
    match result {
        [flag] if expected == yes() || expected == no() => match flag.to_u64() {
            Some(0) => no(),
            Some(1) => yes(),
            _ => flag.to_string(),
        },
        _ => result.iter().map(Felt::to_string).collect::<Vec<_>>().join(" "),
    }
}

/// A `u256`; more than 128 bits of fri do not exist, and count as all there is.
fn balance(result: &[Felt]) -> Option<u128> {
    let [low, high] = result else { return None };
    if *high == Felt::ZERO { low.to_u128() } else { Some(u128::MAX) }
}
