//! The relay's configuration, prepared: policy, rules, pins with the public keys, private keys.
//!
//! In: a [`RelayConfig`] and the files it names. Secrets stay in [`Tokens`] and [`SecretKey`],
//! which zero themselves and print nothing.

use crate::config::{Amount, KeysConfig, PinsConfig, RelayConfig};
use crate::http::clients::{self, ClientLimits};
use crate::secrets::{self, SecretError, SecretErrors};
use crate::store::Budgets;
use portcullis_filters::bearer::Tokens;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{Caps, Contracts, RelayPolicy};
use portcullis_filters::secret::SecretKey;
use std::path::Path;

/// The settings that a reload changes.
#[derive(Debug)]
pub struct Settings {
    pub(crate) policy: RelayPolicy,
    pub(crate) limits: ClientLimits,
    pub(crate) config: RelayConfig,
}

impl Settings {
    /// Reads the tokens.
    ///
    /// # Errors
    /// A token's file is unusable.
    pub(crate) fn load(config: &RelayConfig) -> Result<Self, SecretErrors> {
        Ok(Self {
            policy: policy(config, secrets::tokens("relay.token_files", &config.token_files)?),
            limits: ClientLimits::new(&config.clients),
            config: config.clone(),
        })
    }

    /// What the faucet needs to pay one drip: the amount, and at most the fee's cap.
    pub(crate) fn drip_cost(&self) -> Amount {
        self.config.policy.faucet_amount + self.config.policy.max_fee
    }

    /// The most that operations may spend within 24 hours.
    pub(crate) fn budgets(&self) -> Budgets {
        let RelayConfig { faucet_per_day, fees_per_day, .. } = &self.config;
        Budgets { drips: *faucet_per_day, fees: fees_per_day.map(Amount::fri) }
    }

    /// These settings with the chain, the contracts and the class of accounts of a running relay:
    /// its pins are about those, and do not change.
    pub(crate) fn applied_to(mut self, running: &Self) -> Self {
        let RelayPolicy { chain_id, account_class, contracts, .. } = running.policy.clone();
        self.policy = RelayPolicy { chain_id, account_class, contracts, ..self.policy };
        self
    }
}

impl clients::Settings for Settings {
    fn limits(&self) -> &ClientLimits {
        &self.limits
    }
}

/// The configured policy, with these tokens.
pub(crate) fn policy(config: &RelayConfig, tokens: Tokens) -> RelayPolicy {
    let RelayConfig { policy, pins, .. } = config;
    RelayPolicy {
        tokens,
        trusted_proxies: TrustedProxies::from(config.clients.trusted_proxies.clone()),
        chain_id: chain_id(&pins.chain_id),
        account_class: pins.account_class,
        contracts: Contracts {
            token: pins.token.address,
            staking: pins.staking.address,
            bridge: pins.bridge.address,
            card: pins.card.address,
            registry: pins.registry.address,
            usership: pins.usership.address,
        },
        caps: Caps {
            max_calls: policy.max_calls,
            max_felts: policy.max_calldata,
            max_l2_gas: policy.max_l2_gas,
            max_fee: policy.max_fee.fri(),
        },
        assurance_types: policy.assurance_types.to_vec(),
        assurance_levels: policy.assurance_levels.to_vec(),
        usership_epochs: policy.usership_first_epoch..=policy.usership_last_epoch,
    }
}

fn chain_id(text: &str) -> Felt {
    Felt::from_short_string(text).expect("the configuration takes short strings only")
}

/// An account that signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// `owner`, `verifier` or `faucet`.
    pub(crate) role: &'static str,
    pub(crate) address: Felt,
    pub(crate) public_key: Felt,
}

/// What each account that signs has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accounts<T> {
    pub(crate) owner: T,
    pub(crate) verifier: T,
    /// The account that pays drips, if it is not the owner.
    pub(crate) faucet: Option<T>,
}

impl<T> Accounts<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.owner, &self.verifier].into_iter().chain(&self.faucet)
    }
}

/// The private keys.
pub(crate) type Keys = Accounts<SecretKey>;

impl Keys {
    /// Reads them.
    ///
    /// # Errors
    /// A key's file is unusable.
    pub(crate) fn load(config: &RelayConfig) -> Result<Self, SecretErrors> {
        let KeysConfig { owner_file, verifier_file, faucet_file } = &config.keys;
        let owner = private_key("relay.keys.owner_file", owner_file);
        let verifier = private_key("relay.keys.verifier_file", verifier_file);
        let faucet = faucet_file.as_deref();
        let faucet = faucet.map(|file| private_key("relay.keys.faucet_file", file)).transpose();
        match (owner, verifier, faucet) {
            (Ok(owner), Ok(verifier), Ok(faucet)) => Ok(Self { owner, verifier, faucet }),
            (owner, verifier, faucet) => {
                let errors = [owner.err(), verifier.err(), faucet.err()];
                Err(SecretErrors(errors.into_iter().flatten().collect()))
            }
        }
    }
}

fn private_key(key: &'static str, file: &Path) -> Result<SecretKey, SecretError> {
    const FORM: &str = "a private key: 0x and hexadecimal digits, below the curve's order";
    let parsed = secrets::read(file)
        .and_then(|text| SecretKey::parse(&text).ok_or_else(|| SecretError::not(file, FORM)));
    parsed.map_err(|error| error.of(key))
}

/// What the chain must hold.
#[derive(Debug)]
pub(crate) struct Pins {
    /// The chain, the contracts and the class of accounts, as configured.
    pub(crate) config: PinsConfig,
    pub(crate) chain_id: Felt,
    pub(crate) accounts: Accounts<Account>,
}

impl Pins {
    /// The configured pins, for these keys.
    pub(crate) fn new(config: &RelayConfig, keys: &Keys) -> Self {
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
                faucet: keys.faucet.as_ref().map(|key| account("faucet", pins.faucet, key)),
            },
            config: pins.clone(),
        }
    }
}
