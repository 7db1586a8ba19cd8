//! `[relay]`: the protected write path, its policy, pins and keys.
//!
//! Addresses and amounts are parsed here; secrets stay paths ([`crate::secrets`] reads them). How
//! pins are proved is in `relay::pins`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use portcullis_filters::felt::{Felt, ShortString};
use portcullis_filters::operations::OperationKind;

use super::address::{Listen, NonEmpty};
use super::key::Section;
use super::reader::Reader;
use super::section::{keys, section};
use super::sidecar::{URL_FORM, exact_url};
use super::surface::{
    ClientsConfig, ClientsLive, LISTEN_FORM, TlsConfig, clients, live_clients, tls,
};
use super::units::Amount;
use super::values::{
    Converted, Value, duration, integer, list, mismatch, non_empty, only, operation, optional_path,
    path, text,
};
use super::{DAY, MINUTE, SECOND, SHORTEST, WHY_TIMEOUTS};

const MONTH: Duration = Duration::from_secs(30 * DAY.as_secs());
const WHY_POLICY: &str = "zero refuses everything, and a node executes all of it under one lock";
const WHY_EPOCH: &str = "an epoch has 64 bits on chain";
const WHY_LEVEL: &str = "a level is one byte on chain, and 0 means no level";
const WHY_FIXED: &str = "the relay does not start without it";
const WHY_TOKENS: &str = "one, or two during a rotation";
const FELT_FORM: &str = "a felt: 0x and 1 to 64 hexadecimal digits, below the Stark prime";
const AMOUNT_FORM: &str = "an amount with its unit, such as \"10 STRK\" or \"1000 fri\"";
const FEES_FORM: &str = "an amount with its unit, such as \"100 STRK\", or \"\"";
const DRIPS_FORM: &str = "an integer from 1 to 1000000, or \"\" for no limit";
const SHORT_FORM: &str = "1 to 31 printable ASCII characters";

section! {
    /// The protected write path, for clients with the token.
    /// Leave the section out to switch it off.
    "relay" RelayConfig {
        /// address:port, or unix:/absolute/path.
        /// Why: loopback: the token travels unencrypted as far as here.
        listen: Listen = Default("127.0.0.1:8081"), text(LISTEN_FORM, Listen::parse);
        /// How long one proof of all pins is valid; 100ms to 1m.
        /// Why: a proof is dozens of reads; a change is noticed within this time.
        pins_max_age: Duration = Default("5s"), duration(SHORTEST..=MINUTE, WHY_TIMEOUTS);
    }
    with reader {
        /// The bounds of its clients.
        clients: ClientsConfig = clients(reader, "relay");
        /// The required state of the chain.
        pins: PinsConfig = PinsConfig::read(reader);
        /// Where the private keys are.
        keys: KeysConfig = KeysConfig::read(reader);
        /// The confirmations.
        v2: V2Config = V2Config::read(reader);
        /// All that a reload changes.
        live: RelayLive = RelayLive::read(&mut reader.live());
    }
}

section! {
    /// The part of `[relay]` that a reload changes.
    more live "relay" RelayLive {
        /// Required. The file with the bearer token (32 characters or more); two in a rotation.
        /// Why: a file appears in no process list; two, so that a rotation refuses no client.
        token_files: NonEmpty<PathBuf> = Required(["relay.token"]),
            non_empty(list(text("a path", path), 1..=2, WHY_TOKENS));
        /// The operations that are served; [] for none. Others get 403 "operation_disabled"; POST
        /// /rpc is always served.
        /// Why: all; a deployment without a faucet, for example, leaves faucet-drip out.
        operations: Vec<OperationKind> = Default([
            "register", "verification-attest", "verification-revoke", "mint-card",
            "submit-usership", "faucet-drip", "recovery-propose", "recovery-execute",
            "recovery-cancel", "require-v2"
        ]), list(operation, 0..=OperationKind::ALL.len(), "there are no others");
        /// How long a response waits for the receipt before it says pending; 1s to 1m.
        /// Why: most receipts arrive within it; a backend rarely waits longer.
        receipt_timeout: Duration = Default("10s"),
            duration(SECOND..=MINUTE, WHY_TIMEOUTS);
        /// How many blocks are on top of a final one; 0 to 1000. A write is lost, and may be
        /// written anew, only once another transaction has its nonce in such a block.
        /// Why: deeper than the chain rolls back: a write that reappears is not repeated.
        confirmations: u64 = Default(10), integer(0..=1_000, "no chain rolls back further");
        /// The number of drips in any 24h, of all relays of a store; 1 to 1000000, "" for no limit.
        /// Why: only the operator knows what it may give away; it bounds what a stolen token takes.
        faucet_per_day: Option<u32> = Default(""), optional_drips;
        /// Fees of operations in any 24h, of all relays of a store; up to 1000000 STRK, "" for no
        /// limit. An open operation counts its maximum fee, a settled one the fee of its receipt.
        /// Why: only the operator knows what it may cost; it bounds what a stolen token spends.
        fees_per_day: Option<Amount> = Default(""), text(FEES_FORM, optional_fees);
    }
    with reader {
        /// The limits of each client.
        clients: ClientsLive = live_clients(reader, "relay");
        /// TLS, unless its section is left out.
        tls: Option<TlsConfig> = tls(reader, "relay");
        /// The permitted writes.
        policy: RelayPolicyLive = RelayPolicyLive::read(reader);
        /// Where events are sent.
        events: EventsLive = EventsLive::read(reader);
    }
}

section! {
    /// Events for the backend: what becomes of a write after its response, each a POST that is
    /// signed as Standard Webhooks demand, and repeated for three days.
    live "relay.events" EventsLive {
        /// The URL that events are sent to; "" for none.
        /// Why: a displaced write returns only if its request is repeated: somebody must know.
        url: Option<String> = Default(""), text(URL_FORM, exact_url);
        /// The file with the secret that signs them: whsec_ and base64; mode 0600 or stricter.
        /// A url needs one. Two lines in a rotation: each signs.
        /// Why: a receiver on any network must know who sent an event.
        secret_file: Option<PathBuf> = Default(""), text("a path", optional_path);
    }
}

pub(super) const CLIENTS: Section = Section {
    path: "relay",
    about: &[],
    keys: keys! { "relay":
        /// Clients that the rate limiter tracks.
        /// Why: a backend has few hosts; every other address guesses tokens.
        max_clients = Default(10000);
        /// Every connection begins with a PROXY header (version 2) from one of trusted_proxies.
        /// Why: only for TCP balancers; a connection without the header is closed.
        proxy_protocol = Default(false);
    },
};

pub(super) const LIVE_CLIENTS: Section = Section {
    path: "relay",
    about: &[],
    keys: keys! { live "relay":
        /// Requests that each client with the token may send in any 60 seconds.
        /// Why: a backend writes for all its users, ten times a second.
        requests_per_minute = Default(600);
        /// Concurrent requests of each client.
        /// Why: a burst waits for signers and receipts instead of being refused.
        max_in_flight_per_client = Default(256);
        /// Peers whose X-Forwarded-For is trusted: networks or single addresses; [] for none.
        /// Why: a proxy on this machine; any other peer could claim any address.
        trusted_proxies = Default(["127.0.0.0/8", "::1/128"]);
    },
};

section! {
    /// The permitted writes. The first three keys confirm that V2 verification is permanent.
    "relay.policy" V2Config {
        /// Required, and the only value: there is no V1 path.
        /// Why: a deployment that expects V1 fails at its start.
        identity_verification_mode: () = Required("v2"), only("\"v2\"", "there is no other mode");
        /// Required, and the only value.
        /// Why: irreversible on chain, so it must be set explicitly.
        verification_v2_required: () = Required(true), only("true", WHY_FIXED);
        /// Required, and the only value.
        /// Why: the operator confirms that everything is in place; the pins then prove it.
        ecosystem_ready: () = Required(true), only("true", WHY_FIXED);
    }
}

section! {
    /// The permitted writes.
    more live "relay.policy" RelayPolicyLive {
        /// Calls in one user-signed transaction; 1 to 32.
        /// Why: approve and delegate are two; a wallet needs a few more at most.
        max_calls: usize = Default(8), integer(1..=32, WHY_POLICY);
        /// Felts in its calldata; 16 to 2048.
        /// Why: eight of the allowed calls with all their arguments take fewer.
        max_calldata: usize = Default(256), integer(16..=2_048, WHY_POLICY);
        /// L2 gas that one transaction may request.
        /// Why: many times what the allowed calls use, and still bounded.
        max_l2_gas: u64 = Default(500000000),
            integer(1_000_000..=10_000_000_000, WHY_POLICY);
        /// Maximum fee of one transaction, by its resource bounds.
        /// Why: the most that a mistaken bound can cost a user.
        max_fee: Amount = Default("10 STRK"), text(AMOUNT_FORM, amount);
        /// Assurances that may be attested; 1 to 31 printable ASCII characters each.
        /// Why: the one that the product attests.
        assurance_types: NonEmpty<String> = Default(["age_over_18"]),
            non_empty(list(text(SHORT_FORM, short_string), 1..=usize::MAX, "nothing else"));
        /// Levels that may be attested; 1 to 255.
        /// Why: the three that the product defines.
        assurance_levels: NonEmpty<u8> = Default([1, 2, 3]),
            non_empty(list(integer(1..=255, WHY_LEVEL), 1..=usize::MAX, "nothing else"));
        /// The first epoch whose usership results are accepted.
        /// Why: a forgotten number reads as 0.
        usership_first_epoch: u64 = Default(1), integer(0..=u64::MAX, WHY_EPOCH);
        /// The last epoch whose usership results are accepted.
        /// Why: a timestamp sent as an epoch is far beyond it.
        usership_last_epoch: u64 = Default(1000000), integer(0..=u64::MAX, WHY_EPOCH);
        /// The amount of one faucet drip.
        /// Why: pays for deploying an account and its first transactions.
        faucet_amount: Amount = Default("10 STRK"), text(AMOUNT_FORM, amount);
        /// Time between two drips to one recipient; 1s to 30 days.
        /// Why: test money is for everyone: one drip per day.
        faucet_cooldown: Duration = Default("24h"), duration(SECOND..=MONTH, WHY_TIMEOUTS);
        /// How long a proposed recovery can be cancelled; 1s to 30 days.
        /// Why: a day to notice an unwanted recovery.
        recovery_cancel_window: Duration = Default("24h"),
            duration(SECOND..=MONTH, WHY_TIMEOUTS);
    }
}

section! {
    /// The required state of the chain before each write; each proof checks all of it.
    "relay.pins" PinsConfig {
        /// Required. The chain id, as text.
        /// Why: keys work on every chain; nothing is signed for another one.
        chain_id: String = Required("PORTCULLIS_DEV"), text(SHORT_FORM, short_string);
        /// Required. The class of every account that may send: the users' and our own.
        /// Why: the class decides what a signature means; only this one is known here.
        account_class: Felt = Required(
            "0x5b4b537eaa2399e3aa99c4e2e0208ebd6c71bc1467938cd52c798c601e43564"
        ), text(FELT_FORM, felt);
        /// Required. The account that owns the registry, mints cards and handles recoveries.
        /// Why: a registry with another owner is under someone else's control.
        owner: Felt = Required("0x100"), text(FELT_FORM, felt);
        /// Required. The account that attests; it must differ from the owner.
        /// Why: the minter must not attest, so that one stolen key cannot do both.
        verifier: Felt = Required("0x101"), text(FELT_FORM, felt);
        /// The account that pays the faucet's drips, not the verifier; "" is the owner.
        /// Why: one account less to fund; its own leaves the owner's nonces to operations.
        faucet: Felt = Default(""), text(FELT_FORM, optional_felt);
        /// Required. The L1 contract that the bridge adapter sends to.
        /// Why: a rewired adapter would send elsewhere.
        l1_bridge: Felt = Required("0x1111111111111111111111111111111111111111"),
            text(FELT_FORM, felt);
        /// The least that each signing account must hold; a separate faucet, a drip and max_fee.
        /// Why: readiness fails while there is still money left for fees.
        minimum_balance: Amount = Default("1 STRK"), text(AMOUNT_FORM, amount);
    }
    with reader {
        /// The native token.
        token: PinnedContract = contract(reader, "token");
        /// The identity registry.
        registry: PinnedContract = contract(reader, "registry");
        /// The staking pool.
        staking: PinnedContract = contract(reader, "staking");
        /// The card NFT contract.
        card: PinnedContract = contract(reader, "card");
        /// The usership contract.
        usership: PinnedContract = contract(reader, "usership");
        /// The bridge adapter.
        bridge: PinnedContract = contract(reader, "bridge");
    }
}

pub(super) const CONTRACTS: Section = Section {
    path: "relay.pins",
    about: &[],
    keys: keys! { "relay.pins":
        /// Required. The contract of the native token.
        /// Why: fees and drips are paid in it.
        token = Required("0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d");
        /// Required. Its class.
        /// Why: an upgraded contract is a different one; someone has to review it first.
        token_class = Required("0x2e77ee61d4df3d988ee1f42ea5442e913862cc82c2584d212ecda76666498fc");
        /// Required. The identity registry.
        /// Why: identities, attestations and recoveries are written only there.
        registry = Required("0x200");
        /// Required. Its class.
        /// Why: an upgraded contract is a different one; someone has to review it first.
        registry_class = Required("0x300");
        /// Required. The staking pool.
        /// Why: users approve tokens for it and delegate there.
        staking = Required("0x201");
        /// Required. Its class.
        /// Why: an upgraded contract is a different one; someone has to review it first.
        staking_class = Required("0x301");
        /// Required. The card NFT contract.
        /// Why: cards are minted and moved only in this contract.
        card = Required("0x202");
        /// Required. Its class.
        /// Why: an upgraded contract is a different one; someone has to review it first.
        card_class = Required("0x302");
        /// Required. The usership contract.
        /// Why: results are counted only there.
        usership = Required("0x203");
        /// Required. Its class.
        /// Why: an upgraded contract is a different one; someone has to review it first.
        usership_class = Required("0x303");
        /// Required. The bridge adapter.
        /// Why: whatever it receives leaves the chain.
        bridge = Required("0x204");
        /// Required. Its class.
        /// Why: an upgraded contract is a different one; someone has to review it first.
        bridge_class = Required("0x304");
    },
};

section! {
    /// Files with the private keys of the signing accounts (0x and hexadecimal digits), of mode
    /// 0600 or stricter. Relative paths are first looked up in $CREDENTIALS_DIRECTORY.
    "relay.keys" KeysConfig {
        /// Required. The owner's key.
        /// Why: configurations are shown and shared, keys are not.
        owner_file: PathBuf = Required("owner.key"), text("a path", path);
        /// Required. The verifier's key.
        /// Why: a separate file, so that the two keys can be handed over separately.
        verifier_file: PathBuf = Required("verifier.key"), text("a path", path);
        /// The faucet's key; "" when relay.pins.faucet is "".
        /// Why: the owner pays drips unless another account is named.
        faucet_file: Option<PathBuf> = Default(""), text("a path", optional_path);
    }
}

/// A contract with the class it must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedContract {
    /// Its address.
    pub address: Felt,
    /// Its class.
    pub class: Felt,
}

fn contract(reader: &mut Reader<'_>, name: &str) -> PinnedContract {
    PinnedContract {
        address: reader.take(&format!("relay.pins.{name}"), text(FELT_FORM, felt)),
        class: reader.take(&format!("relay.pins.{name}_class"), text(FELT_FORM, felt)),
    }
}

fn felt(text: &str) -> Result<Felt, String> {
    let felt = Felt::parse(text).ok_or_else(String::new)?;
    if felt == Felt::ZERO {
        Err("zero is no account, contract or class".to_owned())
    } else {
        Ok(felt)
    }
}

/// A felt; zero, which is no account's address, for "".
fn optional_felt(text: &str) -> Result<Felt, String> {
    if text.is_empty() {
        Ok(Felt::ZERO)
    } else {
        felt(text)
    }
}

fn amount(text: &str) -> Result<Amount, String> {
    Amount::parse(text).ok_or_else(String::new)
}

/// A number of drips, or `None` for "". The number in a variable arrives as text, since the default
/// is one.
fn optional_drips(value: &Value<'_>) -> Converted<Option<u32>> {
    let in_range = |drips: &u32| (1..=1_000_000).contains(drips);
    let written = value.get_ref();
    match (written.as_str(), written.as_integer()) {
        (Some(""), _) => return Ok(None),
        (Some(text), _) => text.parse().ok(),
        (_, Some(number)) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    }
    .filter(in_range)
    .map_or_else(|| mismatch(DRIPS_FORM, value), |drips| Ok(Some(drips)))
}

/// A sum of fees, or `None` for "". The store counts them in units of 10^9 fri.
fn optional_fees(text: &str) -> Result<Option<Amount>, String> {
    const RANGE: RangeInclusive<Amount> =
        Amount::from_fri(10_u128.pow(9))..=Amount::from_fri(10_u128.pow(24));
    if text.is_empty() {
        return Ok(None);
    }
    match amount(text)? {
        fees if RANGE.contains(&fees) => Ok(Some(fees)),
        _ => Err(format!(
            "it must be from {} to {}, or \"\" for no limit",
            RANGE.start(),
            RANGE.end()
        )),
    }
}

fn short_string(text: &str) -> Result<String, String> {
    ShortString::parse(text)
        .map(|text| text.as_str().to_owned())
        .ok_or_else(String::new)
}
