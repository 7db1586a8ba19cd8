//! The table of pins: the value that each one reads, and the expected value.

use crate::node::chain::{Chain, RpcError};
use crate::relay::settings::{Account, Accounts, Pins};
use futures_util::future::join_all;
use portcullis_base::config::{Amount, PinsConfig};
use portcullis_base::telemetry::Metrics;
use portcullis_filters::chain::{Pin, UNREADABLE};
use portcullis_filters::felt::Felt;
use portcullis_filters::tx::selector;
use portcullis_filters::txm::node::token_balance;
use portcullis_filters::txm::pins::{FAUCET, V2};
use std::fmt::Display;

/// The API versions that the relay supports.
const SPEC: &str = "0.10.";
const YES: &str = "true";
const NO: &str = "false";

/// The value that a pin reads.
enum Read {
    ChainId,
    SpecVersion,
    /// The class of the contract at an address.
    Class(Felt),
    /// The result of a contract's view.
    View(Felt, &'static str, Vec<Felt>),
    /// The token balance of an account, which must be at least this.
    Balance(Account, Amount),
    /// A value that is known without the chain.
    Known(&'static str),
}

struct Row {
    name: &'static str,
    expected: String,
    read: Read,
}

/// Reads all pins concurrently. `drip` is the balance that the faucet needs.
pub(super) async fn read(pins: &Pins, drip: Amount, chain: &Chain, metrics: &Metrics) -> Vec<Pin> {
    join_all(
        rows(pins, drip)
            .into_iter()
            .map(|row| compare(row, pins, chain, metrics)),
    )
    .await
}

/// All pins as unreadable, except those that are known without the chain.
pub(super) fn unreadable(pins: &Pins, drip: Amount) -> Vec<Pin> {
    let pin = |Row {
                   name,
                   expected,
                   read,
               }| match read {
        Read::Known(actual) => Pin {
            name,
            ok: actual == expected,
            expected,
            actual: actual.into(),
        },
        _ => not_read(name, expected),
    };
    rows(pins, drip).into_iter().map(pin).collect()
}

fn not_read(name: &'static str, expected: String) -> Pin {
    Pin {
        name,
        ok: false,
        expected,
        actual: UNREADABLE.into(),
    }
}

fn rows(pins: &Pins, drip: Amount) -> Vec<Row> {
    let mut rows = vec![
        row("chain_id", &pins.config.chain_id, Read::ChainId),
        row("spec_version", format!("{SPEC}*"), Read::SpecVersion),
    ];
    rows.extend(registry(pins));
    rows.extend(
        pins.accounts
            .iter()
            .flat_map(|account| account_rows(pins, account, drip)),
    );
    for (name, contract) in [
        ("token_class", pins.config.token),
        ("registry_class", pins.config.registry),
        ("staking_class", pins.config.staking),
        ("card_class", pins.config.card),
        ("usership_class", pins.config.usership),
        ("bridge_class", pins.config.bridge),
    ] {
        rows.push(row(name, contract.class, Read::Class(contract.address)));
    }
    rows.extend(wiring(pins));
    rows
}

fn registry(pins: &Pins) -> [Row; 7] {
    let Accounts {
        owner, verifier, ..
    } = pins.accounts;
    let view = |name, view, expected: &dyn Display, args: &[Felt]| {
        row(
            name,
            expected,
            Read::View(pins.config.registry.address, view, args.to_vec()),
        )
    };
    let has_one_key = owner.public_key == verifier.public_key;
    let keys = if has_one_key { "the same" } else { "different" };
    [
        view(V2, "verification_v2_required", &YES, &[]),
        view(
            "account_class",
            "account_class_hash",
            &pins.config.account_class,
            &[],
        ),
        view("registry_owner", "owner", &owner.address, &[]),
        view("registry_verifier", "verifier", &verifier.address, &[]),
        view(
            "verifier_authorised",
            "is_authorised_verifier",
            &YES,
            &[verifier.address],
        ),
        view(
            "owner_is_not_a_verifier",
            "is_authorised_verifier",
            &NO,
            &[owner.address],
        ),
        row("owner_and_verifier_keys", "different", Read::Known(keys)),
    ]
}

fn account_rows(pins: &Pins, account: &Account, drip: Amount) -> [Row; 3] {
    let minimum = pins.config.minimum_balance;
    let ([class, key, balance], minimum) = match account.role {
        "owner" => (["owner_class", "owner_key", "owner_balance"], minimum),
        "verifier" => (
            ["verifier_class", "verifier_key", "verifier_balance"],
            minimum,
        ),
        _ => (["faucet_class", "faucet_key", FAUCET], minimum.max(drip)),
    };
    let Account {
        address,
        public_key,
        ..
    } = *account;
    let view = Read::View(address, "get_public_key", Vec::new());
    [
        row(class, pins.config.account_class, Read::Class(address)),
        row(key, public_key, view),
        row(balance, minimum, Read::Balance(*account, minimum)),
    ]
}

fn wiring(pins: &Pins) -> [Row; 14] {
    let [owner, verifier] = [&pins.accounts.owner, &pins.accounts.verifier].map(|own| own.address);
    let PinsConfig {
        token,
        registry,
        staking,
        card,
        usership,
        bridge,
        l1_bridge,
        ..
    } = &pins.config;
    let [token, registry, staking, card, usership, bridge] =
        [token, registry, staking, card, usership, bridge].map(|contract| contract.address);
    let parts = [card, staking, usership, bridge]
        .map(|part| part.to_string())
        .join(" ");
    let view = |name, to, view, expected: &dyn Display| {
        row(name, expected, Read::View(to, view, Vec::new()))
    };
    [
        view("registry_wiring", registry, "wiring", &parts),
        view("card_owner", card, "owner", &owner),
        view("card_minter", card, "minter", &owner),
        view("card_registry", card, "registry", &registry),
        view("card_bridge", card, "bridge", &bridge),
        view("staking_owner", staking, "owner", &owner),
        view("staking_token", staking, "token", &token),
        view("staking_registry", staking, "registry", &registry),
        view("usership_submitter", usership, "submitter", &verifier),
        view("usership_registry", usership, "registry", &registry),
        view("bridge_owner", bridge, "owner", &owner),
        view("bridge_token", bridge, "token", &token),
        view("bridge_card", bridge, "card", &card),
        view("bridge_l1_contract", bridge, "l1_bridge", l1_bridge),
    ]
}

fn row(name: &'static str, expected: impl Display, read: Read) -> Row {
    Row {
        name,
        expected: expected.to_string(),
        read,
    }
}

async fn compare(row: Row, pins: &Pins, chain: &Chain, metrics: &Metrics) -> Pin {
    let Row {
        name,
        expected,
        read,
    } = row;
    let is_balance = matches!(read, Read::Balance(..));
    let Ok((ok, actual)) = evaluate(read, &expected, pins, chain, metrics).await else {
        return not_read(name, expected);
    };
    let expected = if is_balance {
        format!("at least {expected}")
    } else {
        expected
    };
    Pin {
        name,
        ok,
        expected,
        actual,
    }
}

/// Reads a value; returns whether it is the expected one, and its text.
async fn evaluate(
    read: Read,
    expected: &str,
    pins: &Pins,
    chain: &Chain,
    metrics: &Metrics,
) -> Result<(bool, String), RpcError> {
    let actual = match read {
        Read::Known(text) => text.into(),
        Read::ChainId => {
            let id = chain.chain_id().await?;
            id.to_short_string().unwrap_or_else(|| id.to_string())
        }
        Read::SpecVersion => {
            let version = chain.spec_version().await?;
            return Ok((version.starts_with(SPEC), version));
        }
        Read::Class(address) => match chain.class_hash_at(address).await? {
            Some(class) => class.to_string(),
            None => "no contract".into(),
        },
        Read::View(to, view, args) => text(&chain.call(to, selector(view), &args).await?, expected),
        Read::Balance(Account { role, address, .. }, minimum) => {
            let fri = balance(pins, chain, address).await?;
            metrics.relay.balance(role, fri);
            return Ok((fri >= minimum.fri(), Amount::in_strk(fri)));
        }
    };
    Ok((actual == expected, actual))
}

/// Formats felts: as a flag where a flag is expected.
fn text(result: &[Felt], expected: &str) -> String {
    match result {
        [flag] if [YES, NO].contains(&expected) => match flag.to_u64() {
            Some(0) => NO.into(),
            Some(1) => YES.into(),
            _ => flag.to_string(),
        },
        _ => result
            .iter()
            .map(Felt::to_string)
            .collect::<Vec<_>>()
            .join(" "),
    }
}

async fn balance(pins: &Pins, chain: &Chain, account: Felt) -> Result<u128, RpcError> {
    let result = chain
        .call(
            pins.config.token.address,
            selector("balance_of"),
            &[account],
        )
        .await?;
    token_balance(&result).ok_or(RpcError::MalformedAnswer)
}
