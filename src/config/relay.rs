//! The write path's configuration: `[relay]`, its policy, pins and keys.
//!
//! In: the reader. Out: [`RelayConfig`], with addresses and amounts parsed and secrets as paths
//! only: whoever needs one reads it ([`crate::secrets`]). What pins mean is in `relay::pins`.

use super::address::{Listen, NonEmpty};
use super::check::{LISTEN_FORM, SHORTEST, WHY_TIMEOUTS};
use super::clients::{ClientsConfig, clients, paths};
use super::file::Reader;
use super::tls::{TlsConfig, tls, tls_paths};
use super::units::Amount;
use super::values::{boolean, distinct, duration, integer, text};
use portcullis_filters::felt::{Felt, ShortString};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// `[relay]`: the protected write path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayConfig {
    /// Where it listens.
    pub listen: Listen,
    /// Files of the bearer tokens, one or two.
    pub token_files: NonEmpty<PathBuf>,
    /// What its connections are secured with, if they are.
    pub tls: Option<TlsConfig>,
    /// How much one client may ask.
    pub clients: ClientsConfig,
    /// How long one proof of the pins serves.
    pub pins_max_age: Duration,
    /// How long an answer waits for a receipt.
    pub receipt_timeout: Duration,
    /// What may be written.
    pub policy: RelayPolicyConfig,
    /// What the chain must hold.
    pub pins: PinsConfig,
    /// Where the private keys are.
    pub keys: KeysConfig,
}

/// `[relay.policy]`: what may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayPolicyConfig {
    /// Calls in one user-signed transaction.
    pub max_calls: usize,
    /// Felts in its calldata.
    pub max_calldata: usize,
    /// L2 gas of one transaction.
    pub max_l2_gas: u64,
    /// Fee of one transaction by its bounds.
    pub max_fee: Amount,
    /// Assurances that may be attested, distinct.
    pub assurance_types: NonEmpty<String>,
    /// Levels that may be attested, distinct.
    pub assurance_levels: NonEmpty<u8>,
    /// Epochs whose usership results are taken.
    pub usership_epochs: RangeInclusive<u64>,
    /// One faucet drip.
    pub faucet_amount: Amount,
    /// Between two drips to one recipient.
    pub faucet_cooldown: Duration,
    /// How long a proposed recovery can be cancelled.
    pub recovery_cancel_window: Duration,
}

/// `[relay.pins]`: what the chain must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinsConfig {
    /// The chain id as text, 1 to 31 ASCII characters.
    pub chain_id: String,
    /// The class of every account.
    pub account_class: Felt,
    /// The account that owns the registry.
    pub owner: Felt,
    /// The account that attests.
    pub verifier: Felt,
    /// The account that pays drips: the owner unless another is given.
    pub faucet: Felt,
    /// The native token.
    pub token: PinnedContract,
    /// The identity registry.
    pub registry: PinnedContract,
    /// The staking pool.
    pub staking: PinnedContract,
    /// The card NFT contract.
    pub card: PinnedContract,
    /// The usership contract.
    pub usership: PinnedContract,
    /// The bridge adapter.
    pub bridge: PinnedContract,
    /// The contract on L1 that the adapter sends to.
    pub l1_bridge: Felt,
    /// What each signing account must hold.
    pub minimum_balance: Amount,
}

/// A contract with the class it must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedContract {
    /// Its address.
    pub address: Felt,
    /// Its class.
    pub class: Felt,
}

/// `[relay.keys]`: files of private keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysConfig {
    /// The owner's.
    pub owner: PathBuf,
    /// The verifier's.
    pub verifier: PathBuf,
    /// The faucet's, if it is an account of its own.
    pub faucet: Option<PathBuf>,
}

const MONTH: Duration = Duration::from_secs(30 * 24 * 3_600);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const WHY_POLICY: &str = "zero refuses everything, and a node executes all of it under one lock";
const FELT_FORM: &str = "a felt: 0x and 1 to 64 hexadecimal digits, below the Stark prime";

/// Reads `[relay]`.
pub(super) fn relay(reader: &mut Reader<'_>) -> RelayConfig {
    let config = RelayConfig {
        listen: reader.take("relay.listen", text(LISTEN_FORM, Listen::parse)),
        token_files: reader.take_list("relay.token_files", text("a path", path), token_files),
        tls: tls(reader, tls_paths!("relay")),
        clients: clients(reader, paths!("relay")),
        pins_max_age: reader.take("relay.pins_max_age", duration(SHORTEST..=MINUTE, WHY_TIMEOUTS)),
        receipt_timeout: reader
            .take("relay.receipt_timeout", duration(SECOND..=MINUTE, WHY_TIMEOUTS)),
        policy: policy(reader),
        pins: pins(reader),
        keys: KeysConfig {
            owner: reader.take("relay.keys.owner_file", text("a path", path)),
            verifier: reader.take("relay.keys.verifier_file", text("a path", path)),
            faucet: reader.take("relay.keys.faucet_file", text("a path", optional_path)),
        },
    };
    together(&config, reader);
    config
}

fn policy(reader: &mut Reader<'_>) -> RelayPolicyConfig {
    // owner's table "Required relay policy values": anything else stops the start
    reader.take("relay.policy.identity_verification_mode", text("\"v2\"", must_be_v2));
    for key in ["relay.policy.verification_v2_required", "relay.policy.ecosystem_ready"] {
        reader.take(key, boolean(true, "there is no relay without it"));
    }
    let first = reader.take("relay.policy.usership_first_epoch", integer(0..=u64::MAX, ANY));
    let last = reader.take("relay.policy.usership_last_epoch", integer(0..=u64::MAX, ANY));
    RelayPolicyConfig {
        max_calls: reader.take("relay.policy.max_calls", integer(1..=32, WHY_POLICY)),
        max_calldata: reader.take("relay.policy.max_calldata", integer(16..=2_048, WHY_POLICY)),
        max_l2_gas: reader
            .take("relay.policy.max_l2_gas", integer(1_000_000..=10_000_000_000, WHY_POLICY)),
        max_fee: reader.take("relay.policy.max_fee", text(AMOUNT_FORM, amount)),
        assurance_types: reader.take_list(
            "relay.policy.assurance_types",
            text("1 to 31 printable ASCII characters", short_string),
            |types| at_least_one(distinct(types, Clone::clone)?),
        ),
        assurance_levels: reader.take_list(
            "relay.policy.assurance_levels",
            integer::<u8>(1..=255, "a level is one byte on chain, and 0 is none"),
            |levels| at_least_one(distinct(levels, ToString::to_string)?),
        ),
        usership_epochs: first..=last,
        faucet_amount: reader.take("relay.policy.faucet_amount", text(AMOUNT_FORM, amount)),
        faucet_cooldown: reader
            .take("relay.policy.faucet_cooldown", duration(SECOND..=MONTH, WHY_TIMEOUTS)),
        recovery_cancel_window: reader
            .take("relay.policy.recovery_cancel_window", duration(SECOND..=MONTH, WHY_TIMEOUTS)),
    }
}

const ANY: &str = "an epoch has 64 bits on chain";
const AMOUNT_FORM: &str = "an amount with its unit, such as \"10 STRK\" or \"1000 fri\"";

fn pins(reader: &mut Reader<'_>) -> PinsConfig {
    let owner = reader.take("relay.pins.owner", text(FELT_FORM, felt));
    let mut contract = |address, class| PinnedContract {
        address: reader.take(address, text(FELT_FORM, felt)),
        class: reader.take(class, text(FELT_FORM, felt)),
    };
    let token = contract("relay.pins.token", "relay.pins.token_class");
    let registry = contract("relay.pins.registry", "relay.pins.registry_class");
    let staking = contract("relay.pins.staking", "relay.pins.staking_class");
    let card = contract("relay.pins.card", "relay.pins.card_class");
    let usership = contract("relay.pins.usership", "relay.pins.usership_class");
    let bridge = contract("relay.pins.bridge", "relay.pins.bridge_class");
    let faucet = reader.take("relay.pins.faucet", text(FELT_FORM, optional_felt));
    PinsConfig {
        chain_id: reader
            .take("relay.pins.chain_id", text("1 to 31 printable ASCII characters", short_string)),
        account_class: reader.take("relay.pins.account_class", text(FELT_FORM, felt)),
        owner,
        verifier: reader.take("relay.pins.verifier", text(FELT_FORM, felt)),
        faucet: faucet.unwrap_or(owner),
        token,
        registry,
        staking,
        card,
        usership,
        bridge,
        l1_bridge: reader.take("relay.pins.l1_bridge", text(FELT_FORM, felt)),
        minimum_balance: reader.take("relay.pins.minimum_balance", text(AMOUNT_FORM, amount)),
    }
}

/// What no key can tell alone.
fn together(config: &RelayConfig, reader: &mut Reader<'_>) {
    let RelayConfig { pins, keys, policy, .. } = config;
    if pins.owner == pins.verifier {
        let message = "expected another account than relay.pins.owner: whoever owns the registry \
                       must not attest";
        reader.clash("relay.pins.verifier", "relay.pins.owner", message.to_owned());
    }
    if keys.owner == keys.verifier {
        let message = "expected another file than relay.keys.owner_file: the keys must differ";
        reader.clash("relay.keys.verifier_file", "relay.keys.owner_file", message.to_owned());
    }
    if (pins.faucet == pins.owner) != keys.faucet.is_none() {
        let message = "expected both relay.pins.faucet and relay.keys.faucet_file, or neither";
        reader.clash("relay.keys.faucet_file", "relay.pins.faucet", message.to_owned());
    }
    if policy.usership_epochs.is_empty() {
        let message = "expected no less than relay.policy.usership_first_epoch";
        let keys = ("relay.policy.usership_last_epoch", "relay.policy.usership_first_epoch");
        reader.clash(keys.0, keys.1, message.to_owned());
    }
}

fn token_files(files: Vec<PathBuf>) -> Result<NonEmpty<PathBuf>, String> {
    let files = distinct(files, |file| file.display().to_string())?;
    let count = files.len();
    let files = NonEmpty::new(files).filter(|_| count <= 2);
    files
        .ok_or_else(|| format!("expected one file, or two while a token is rotated, found {count}"))
}

fn at_least_one<T>(items: Vec<T>) -> Result<NonEmpty<T>, String> {
    NonEmpty::new(items).ok_or_else(|| "expected at least one, found none".to_owned())
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    optional_path(text)?.ok_or_else(|| "it is empty".to_owned())
}

pub(super) fn optional_path(text: &str) -> Result<Option<PathBuf>, String> {
    match text {
        "" => Ok(None),
        _ if text.contains('\0') => Err("a path holds no NUL".to_owned()),
        _ => Ok(Some(PathBuf::from(text))),
    }
}

fn felt(text: &str) -> Result<Felt, String> {
    let felt = Felt::parse(text).ok_or("it is none")?;
    if felt == Felt::ZERO { Err("zero is nobody's".to_owned()) } else { Ok(felt) }
}

fn optional_felt(text: &str) -> Result<Option<Felt>, String> {
    if text.is_empty() { Ok(None) } else { felt(text).map(Some) }
}

fn amount(text: &str) -> Result<Amount, String> {
    Amount::parse(text).ok_or_else(|| "it is none".to_owned())
}

fn short_string(text: &str) -> Result<String, String> {
    let known = ShortString::parse(text).ok_or("it is none")?;
    Ok(known.as_str().to_owned())
}

fn must_be_v2(text: &str) -> Result<(), String> {
    if text == "v2" { Ok(()) } else { Err("there is no other mode".to_owned()) }
}
