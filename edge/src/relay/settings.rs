//! The relay's configuration, prepared: policy, rules, pins with the public keys, private keys.
//!
//! In: a [`RelayConfig`], or the [`RelayLive`] of a reload, and the files that it names. Secrets
//! stay in [`Tokens`] and [`SecretKey`], which zero themselves and print nothing.

use super::receiver::Receiver;
use crate::http::clients::{self, ClientLimits};
use portcullis_base::config::{Amount, KeysConfig, PinsConfig, RelayConfig, RelayLive};
use portcullis_base::secrets::{self, SecretError, SecretErrors};
use portcullis_filters::bearer::Tokens;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{Caps, Contracts, RelayPolicy};
use portcullis_filters::secret::SecretKey;
use portcullis_filters::txm;
pub(crate) use portcullis_filters::txm::settings::Accounts;
use portcullis_store::Budgets;
use std::path::Path;
use std::time::Duration;

/// The settings that a reload changes.
#[derive(Debug)]
pub struct Settings {
    pub(crate) policy: RelayPolicy,
    pub(crate) limits: ClientLimits,
    /// The keys of the configuration that are live.
    pub live: RelayLive,
}

/// The part of the policy that the pins cover, which does not change while the relay runs.
#[derive(Clone, Copy, Debug)]
pub struct Pinned {
    chain_id: Felt,
    account_class: Felt,
    contracts: Contracts,
}

impl Pinned {
    /// The pinned part of a policy, as configured.
    pub fn new(pins: &PinsConfig) -> Self {
        Self {
            chain_id: chain_id(&pins.chain_id),
            account_class: pins.account_class,
            contracts: contracts(pins),
        }
    }
}

/// The secrets that a reload reads again.
pub struct LiveSecrets {
    /// The tokens of clients.
    pub tokens: Tokens,
    /// The receiver of events, if there is one.
    pub(crate) receiver: Option<Receiver>,
}

impl LiveSecrets {
    /// Reads the tokens, and the secret of the receiver.
    ///
    /// # Errors
    /// A file is unusable.
    pub fn load(live: &RelayLive) -> Result<Self, SecretErrors> {
        let tokens = secrets::tokens("relay.token_files", &live.token_files);
        let receiver = Receiver::load(&live.events).map_err(SecretErrors::from);
        match (tokens, receiver) {
            (Ok(tokens), Ok(receiver)) => Ok(Self { tokens, receiver }),
            (tokens, receiver) => Err(SecretErrors::join([tokens.err(), receiver.err()])),
        }
    }
}

impl Settings {
    /// The settings for clients with these tokens.
    pub fn new(live: &RelayLive, tokens: Tokens, pinned: Pinned) -> Self {
        Self {
            policy: policy(live, tokens, pinned),
            limits: ClientLimits::new(&live.clients),
            live: live.clone(),
        }
    }

    /// The balance that one drip needs: the amount, and the cap of the fee.
    pub(crate) fn drip_cost(&self) -> Amount {
        self.live.policy.faucet_amount + self.live.policy.max_fee
    }

    /// The most that operations may spend within 24 hours.
    pub(crate) fn budgets(&self) -> Budgets {
        let RelayLive {
            faucet_per_day,
            fees_per_day,
            ..
        } = &self.live;
        Budgets {
            drips: *faucet_per_day,
            fees: fees_per_day.map(Amount::fri),
        }
    }

    /// The bounds of writes.
    pub(super) fn bounds(&self) -> txm::settings::Settings {
        let RelayLive {
            policy,
            receipt_timeout,
            confirmations,
            ..
        } = &self.live;
        txm::settings::Settings {
            faucet_amount: policy.faucet_amount.fri(),
            faucet_cooldown: policy.faucet_cooldown,
            max_fee: policy.max_fee.fri(),
            max_l2_gas: policy.max_l2_gas,
            recovery_cancel_window: policy.recovery_cancel_window,
            receipt_timeout: *receipt_timeout,
            confirmations: *confirmations,
            budgets: self.budgets(),
        }
    }

    /// The part of the policy that the pins cover.
    pub(super) fn pinned(&self) -> Pinned {
        let RelayPolicy {
            chain_id,
            account_class,
            contracts,
            ..
        } = self.policy;
        Pinned {
            chain_id,
            account_class,
            contracts,
        }
    }
}

impl clients::Settings for Settings {
    fn limits(&self) -> &ClientLimits {
        &self.limits
    }

    fn trusted_proxies(&self) -> &TrustedProxies {
        &self.policy.trusted_proxies
    }
}

/// The configured policy, with these tokens.
pub fn policy(live: &RelayLive, tokens: Tokens, pinned: Pinned) -> RelayPolicy {
    let Pinned {
        chain_id,
        account_class,
        contracts,
    } = pinned;
    let policy = &live.policy;
    RelayPolicy {
        tokens,
        trusted_proxies: TrustedProxies::from(&*live.clients.trusted_proxies),
        chain_id,
        account_class,
        contracts,
        caps: Caps {
            max_calls: policy.max_calls,
            max_felts: policy.max_calldata,
            max_l2_gas: policy.max_l2_gas,
            max_fee: policy.max_fee.fri(),
        },
        operations: live.operations.clone(),
        assurance_types: policy.assurance_types.to_vec(),
        assurance_levels: policy.assurance_levels.to_vec(),
        usership_epochs: policy.usership_first_epoch..=policy.usership_last_epoch,
    }
}

fn contracts(pins: &PinsConfig) -> Contracts {
    Contracts {
        token: pins.token.address,
        staking: pins.staking.address,
        bridge: pins.bridge.address,
        card: pins.card.address,
        registry: pins.registry.address,
        usership: pins.usership.address,
    }
}

fn chain_id(text: &str) -> Felt {
    Felt::from_short_string(text).expect("the configuration takes short strings only")
}

/// An account that signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// `owner`, `verifier` or `faucet`.
    pub role: &'static str,
    /// The address of its contract.
    pub address: Felt,
    pub(crate) public_key: Felt,
}

/// The private keys.
pub type Keys = Accounts<SecretKey>;

/// Reads the private keys.
///
/// # Errors
/// A key's file is unusable.
pub fn load_keys(config: &RelayConfig) -> Result<Keys, SecretErrors> {
    let KeysConfig {
        owner_file,
        verifier_file,
        faucet_file,
    } = &config.keys;
    let owner = private_key("relay.keys.owner_file", owner_file);
    let verifier = private_key("relay.keys.verifier_file", verifier_file);
    let faucet = faucet_file.as_deref();
    let faucet = faucet
        .map(|file| private_key("relay.keys.faucet_file", file))
        .transpose();
    match (owner, verifier, faucet) {
        (Ok(owner), Ok(verifier), Ok(faucet)) => Ok(Keys {
            owner,
            verifier,
            faucet,
        }),
        (owner, verifier, faucet) => {
            let errors = [owner.err(), verifier.err(), faucet.err()];
            Err(SecretErrors(errors.into_iter().flatten().collect()))
        }
    }
}

fn private_key(key: &'static str, file: &Path) -> Result<SecretKey, SecretError> {
    const FORM: &str = "a private key: 0x and hexadecimal digits, below the curve's order";
    let parsed = secrets::read(file)
        .and_then(|text| SecretKey::parse(&text).ok_or_else(|| SecretError::not(file, FORM)));
    parsed.map_err(|error| error.of(key))
}

/// The required state of the chain.
#[derive(Debug)]
pub struct Pins {
    /// The chain, the contracts and the class of accounts, as configured.
    pub(crate) config: PinsConfig,
    /// The chain that transactions are signed for.
    pub chain_id: Felt,
    pub(crate) accounts: Accounts<Account>,
    /// How long a proof of them is valid.
    pub(crate) max_age: Duration,
}

impl Pins {
    /// The configured pins, for these keys.
    pub fn new(config: &RelayConfig, keys: &Keys) -> Self {
        let pins = &config.pins;
        let account = |role, address, key: &SecretKey| Account {
            role,
            address,
            public_key: key.public_key(),
        };
        Self {
            chain_id: chain_id(&pins.chain_id),
            accounts: Accounts {
                owner: account("owner", pins.owner, &keys.owner),
                verifier: account("verifier", pins.verifier, &keys.verifier),
                faucet: keys
                    .faucet
                    .as_ref()
                    .map(|key| account("faucet", pins.faucet, key)),
            },
            config: pins.clone(),
            max_age: config.pins_max_age,
        }
    }

    /// The pins as the write path uses them.
    pub(super) fn for_writes(&self) -> txm::settings::Pins {
        let Accounts {
            owner,
            verifier,
            faucet,
        } = self.accounts;
        txm::settings::Pins {
            chain_id: self.chain_id,
            contracts: contracts(&self.config),
            account_class: self.config.account_class,
            accounts: Accounts {
                owner: owner.address,
                verifier: verifier.address,
                faucet: faucet.map(|faucet| faucet.address),
            },
        }
    }
}
