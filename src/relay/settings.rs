//! The relay's configuration made ready: policy, pins with the keys' public halves, keys.
//!
//! In: a [`RelayConfig`] and the files it names. Secrets stay in [`Tokens`] and [`SecretKey`],
//! which wipe themselves and print nothing.

use crate::config::{Amount, PinnedContract, RelayConfig};
use crate::http::clients::ClientLimits;
use crate::secrets::{self, SecretError};
use portcullis_filters::bearer::Tokens;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{Caps, Contracts, RelayPolicy};
use portcullis_filters::secret::SecretKey;
use std::path::Path;
use std::time::Duration;

/// What a running relay can change.
#[derive(Debug)]
pub struct Settings {
    /// The policy.
    pub policy: RelayPolicy,
    /// What the operations keep to.
    pub rules: Rules,
    /// How much one client may ask.
    pub limits: ClientLimits,
}

impl Settings {
    /// Reads the tokens.
    ///
    /// # Errors
    /// A token's file can not be used.
    pub fn load(config: &RelayConfig) -> Result<Self, SecretError> {
        Ok(Self {
            policy: policy(config, tokens(config)?),
            rules: Rules::from(config),
            limits: ClientLimits::new(&config.clients),
        })
    }

    /// These settings with what a running relay does not change: the chain, the contracts and the
    /// class of accounts, which its proofs are about.
    pub fn taken_over_by(mut self, running: &Self) -> Self {
        let RelayPolicy { chain_id, account_class, contracts, .. } = running.policy.clone();
        self.policy = RelayPolicy { chain_id, account_class, contracts, ..self.policy };
        self
    }
}

fn tokens(config: &RelayConfig) -> Result<Tokens, SecretError> {
    let mut tokens = Vec::new();
    for file in config.token_files.iter() {
        let token = secrets::read(file)?;
        // judged one by one, so that the file at fault is named
        Tokens::new(std::slice::from_ref(&token)).ok_or_else(|| {
            SecretError::not(file, "a token: at least 32 visible ASCII characters on one line")
        })?;
        tokens.push(token);
    }
    let twice = || SecretError::not(config.token_files.first(), "a token that no other file holds");
    Tokens::new(&tokens).ok_or_else(twice)
}

/// The policy with these tokens.
pub fn policy(config: &RelayConfig, tokens: Tokens) -> RelayPolicy {
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
        usership_epochs: policy.usership_epochs.clone(),
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
    /// Its address.
    pub address: Felt,
    /// The public half of the key that we hold for it.
    pub public_key: Felt,
}

/// The private keys.
#[derive(Debug)]
pub struct Keys {
    /// The owner's.
    pub owner: SecretKey,
    /// The verifier's.
    pub verifier: SecretKey,
    /// The faucet's, if it is an account of its own.
    pub faucet: Option<SecretKey>,
}

impl Keys {
    /// Reads them.
    ///
    /// # Errors
    /// A key's file can not be used.
    pub fn load(config: &RelayConfig) -> Result<Self, SecretError> {
        Ok(Self {
            owner: key(&config.keys.owner)?,
            verifier: key(&config.keys.verifier)?,
            faucet: config.keys.faucet.as_deref().map(key).transpose()?,
        })
    }
}

fn key(file: &Path) -> Result<SecretKey, SecretError> {
    let text = secrets::read(file)?;
    SecretKey::parse(&text).ok_or_else(|| {
        SecretError::not(file, "a private key: 0x and hexadecimal digits, below the curve's order")
    })
}

/// What the chain must hold.
#[derive(Clone, Debug)]
pub struct Pins {
    /// The chain id, as text.
    pub chain_id_text: String,
    /// The chain id.
    pub chain_id: Felt,
    /// The class of every account.
    pub account_class: Felt,
    /// The account that owns the registry.
    pub owner: Account,
    /// The account that attests.
    pub verifier: Account,
    /// The account that pays drips, if it is not the owner.
    pub faucet: Option<Account>,
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

impl Pins {
    /// As configured, for these keys.
    pub fn new(config: &RelayConfig, keys: &Keys) -> Self {
        let pins = &config.pins;
        let account = |role, address, key: &SecretKey| Account {
            role,
            address,
            public_key: key.public_key(),
        };
        Self {
            chain_id_text: pins.chain_id.clone(),
            chain_id: chain_id(&pins.chain_id),
            account_class: pins.account_class,
            owner: account("owner", pins.owner, &keys.owner),
            verifier: account("verifier", pins.verifier, &keys.verifier),
            faucet: keys.faucet.as_ref().map(|key| account("faucet", pins.faucet, key)),
            token: pins.token,
            registry: pins.registry,
            staking: pins.staking,
            card: pins.card,
            usership: pins.usership,
            bridge: pins.bridge,
            l1_bridge: pins.l1_bridge,
            minimum_balance: pins.minimum_balance,
        }
    }

    /// The accounts that sign.
    pub fn accounts(&self) -> impl Iterator<Item = Account> {
        [self.owner, self.verifier].into_iter().chain(self.faucet)
    }
}

/// What the operations need beside the chain.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// One faucet drip, in fri.
    pub faucet_amount: u128,
    /// Between two drips to one recipient.
    pub faucet_cooldown: Duration,
    /// How long a proposed recovery can be cancelled.
    pub recovery_cancel_window: Duration,
    /// L2 gas of one transaction.
    pub max_l2_gas: u64,
    /// Fee of one transaction by its bounds, in fri.
    pub max_fee: u128,
    /// How long an answer waits for a receipt.
    pub receipt_timeout: Duration,
}

impl From<&RelayConfig> for Rules {
    fn from(config: &RelayConfig) -> Self {
        let policy = &config.policy;
        Self {
            faucet_amount: policy.faucet_amount.fri(),
            faucet_cooldown: policy.faucet_cooldown,
            recovery_cancel_window: policy.recovery_cancel_window,
            max_l2_gas: policy.max_l2_gas,
            max_fee: policy.max_fee.fri(),
            receipt_timeout: config.receipt_timeout,
        }
    }
}
