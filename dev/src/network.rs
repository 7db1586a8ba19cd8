//! The development network on a node: our accounts and the five contracts, wired.
//!
//! In: a `starknet-devnet` and a folder with keys, which are created if they are missing. Out: the
//! configuration that pins the network. Deployed contracts are left unchanged, so a node can be
//! prepared again. Only this command uses the node's `devnet_mint`.

use super::node::CHAIN_ID;
use super::secrets::{ACCOUNT_CLASS, Account, Accounts};
use portcullis_base::config::NodeConfig;
use portcullis_base::io::MemoryPool;
use portcullis_base::telemetry::Metrics;
use portcullis_edge::node::chain::{CallTrace, Chain, RpcError, code};
use portcullis_edge::node::{Credentials, MAX_ANSWER, Node, NodeClient, NodeError};
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{DEPLOY_ACCOUNT_METHOD, INVOKE_METHOD};
use portcullis_filters::tx::{
    Bounds, Call, Declare, DeployAccount, Invoke, Transaction, contract_address, selector,
};
use portcullis_program::command::output;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// STRK, predeployed on the node.
pub(super) const TOKEN: &str = "0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d";
/// The universal deployer, predeployed on the node.
const DEPLOYER: &str = "0x41a78e741e5af2fec34b695679bc6891742439f7afb8484ecd7766661ad02bf";
/// A stand-in for the contract on L1.
const L1_BRIDGE: &str = "0x1111111111111111111111111111111111111111";
/// Seconds before a recovery can be executed.
const RECOVERY_DELAY: u64 = 3_600;
/// Seconds before a stake can be withdrawn.
const UNBONDING_DELAY: u64 = 60;
/// How long a call that times out is retried: a slow machine compiles a declared class for seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bounds of a declaration: the largest takes 640 million L2 gas.
const DECLARE: Bounds = Bounds {
    l1_gas: (0, PRICE),
    l1_data_gas: (10_000, PRICE),
    l2_gas: (1_000_000_000, PRICE),
};
/// Bounds of all other transactions here.
const INVOKE: Bounds = Bounds {
    l1_gas: (0, PRICE),
    l1_data_gas: (50_000, PRICE),
    l2_gas: (100_000_000, PRICE),
};
/// Ten times the default price of the node, 1 gfri.
const PRICE: u128 = 10_000_000_000;

/// The contracts, dependencies first: name, and class in the node's format.
const CLASSES: [(&str, &str); 5] = [
    (
        "registry",
        include_str!("../../conf/dev/contracts/build/registry.sierra.json"),
    ),
    (
        "card",
        include_str!("../../conf/dev/contracts/build/card.sierra.json"),
    ),
    (
        "staking",
        include_str!("../../conf/dev/contracts/build/staking.sierra.json"),
    ),
    (
        "usership",
        include_str!("../../conf/dev/contracts/build/usership.sierra.json"),
    ),
    (
        "bridge",
        include_str!("../../conf/dev/contracts/build/bridge.sierra.json"),
    ),
];
/// The class hashes of the contracts.
const HASHES: &str = include_str!("../../conf/dev/contracts/build/classes.json");

/// A contract: its class and its (future) address.
#[derive(Clone, Copy)]
struct Contract {
    class: Felt,
    compiled: Felt,
    address: Felt,
}

/// Why the network could not be set up.
#[derive(Debug, Error)]
pub(super) enum NetworkError {
    /// A call to the node failed.
    #[error("{0}: {1:?}")]
    Node(&'static str, RpcError),
    /// The node did not answer, with the cause.
    #[error("the node does not answer: {0}")]
    Unreachable(String),
    /// A transaction reverted.
    #[error("{0}: reverted, {why}", why = .1.as_deref().unwrap_or("no reason reported"))]
    Reverted(&'static str, Option<String>),
}

/// Whether permanent V2 verification is activated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verification {
    V1,
    V2,
}

/// The network on one node.
pub(super) struct Network {
    chain: Chain,
    chain_id: Felt,
    token: Felt,
    accounts: Accounts,
    contracts: [Contract; 5],
}

impl Network {
    /// The network with these accounts on a node of our own. Sends it no request.
    pub(super) fn of_our_own(config: &NodeConfig, accounts: Accounts) -> Self {
        let node = Node::new(
            config,
            Credentials::load(&config.live, &config.url),
            Arc::new(Metrics::default()),
        );
        let client = NodeClient::new(config, &node, MemoryPool::new(4 * MAX_ANSWER));
        let token = known(TOKEN);
        let contracts = contracts(&accounts, token);
        let chain_id = Felt::from_short_string(CHAIN_ID).unwrap_or(Felt::ZERO);
        Self {
            chain: Chain(client),
            chain_id,
            token,
            accounts,
            contracts,
        }
    }

    /// A network on a node that `dev` did not start. Requests only the chain id from it.
    pub(super) async fn on(node: &NodeConfig, accounts: Accounts) -> Result<Self, NetworkError> {
        let network = Self::of_our_own(node, accounts);
        let chain_id = network
            .chain
            .chain_id()
            .await
            .map_err(|error| match error {
                RpcError::Node(error) => {
                    let cause = network.chain.0.status().failure_cause(0);
                    NetworkError::Unreachable(cause.unwrap_or_else(|| error.name().to_owned()))
                }
                error => failed("chain id", error),
            })?;
        Ok(Self {
            chain_id,
            ..network
        })
    }

    /// Whether the node is a `starknet-devnet`: others reject its methods.
    pub(super) async fn is_devnet(&self) -> Result<bool, NetworkError> {
        match self.chain.ask("devnet_getConfig", "[]").await {
            Ok(_) => Ok(true),
            Err(RpcError::Returned(_) | RpcError::Node(NodeError::Status)) => Ok(false),
            Err(error) => Err(failed("looking for the methods of starknet-devnet", error)),
        }
    }

    /// Deploys the accounts and contracts that are missing.
    pub(super) async fn make(&self, verification: Verification) -> Result<(), NetworkError> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.deploy_missing().await {
                Err(NetworkError::Node(_, RpcError::Node(NodeError::Timeout)))
                    if Instant::now() < end =>
                {
                    output::notice("the node did not respond in time: retrying ...");
                }
                deployed => break deployed?,
            }
        }
        if verification == Verification::V2 {
            let to = self.contracts[0].address;
            let call = Call {
                to,
                selector: selector("require_v2"),
                args: vec![],
            };
            self.invoke("require_v2", vec![call]).await?;
        }
        Ok(())
    }

    async fn deploy_missing(&self) -> Result<(), NetworkError> {
        for account in self.accounts.all() {
            self.make_account(account).await?;
        }
        if self.is_missing(self.contracts[0].address).await? {
            self.declare().await?;
            self.invoke("deploying the contracts", self.deployment())
                .await?;
        }
        Ok(())
    }

    /// The epoch of the node's chain.
    pub(super) async fn epoch(&self) -> Result<String, NetworkError> {
        self.chain
            .epoch()
            .await
            .map_err(|error| failed("reading the first block", error))
    }

    async fn is_missing(&self, address: Felt) -> Result<bool, NetworkError> {
        let class = self.chain.class_hash_at(address).await;
        class
            .map(|class| class.is_none())
            .map_err(|error| failed("looking for a contract", error))
    }

    /// Gives an account 1,000 STRK and deploys it.
    async fn make_account(&self, account: &Account) -> Result<(), NetworkError> {
        const WHAT: &str = "deploying an account";
        if !self.is_missing(account.address).await? {
            return Ok(());
        }
        let params = format!(
            r#"{{"address":"{}","amount":1000000000000000000000,"unit":"FRI"}}"#,
            account.address
        );
        self.chain
            .ask("devnet_mint", &params)
            .await
            .map_err(|error| failed(WHAT, error))?;
        let public_key = account.key.public_key();
        let deploy = DeployAccount {
            class_hash: known(ACCOUNT_CLASS),
            public_key,
            bounds: INVOKE,
        };
        let transaction = Transaction::from(deploy).sign(self.chain_id, &account.key);
        self.submit(WHAT, DEPLOY_ACCOUNT_METHOD, &transaction.to_params())
            .await
    }

    async fn declare(&self) -> Result<(), NetworkError> {
        const WHAT: &str = "declaring a class";
        let owner = &self.accounts.owner;
        for (contract, (_, class)) in self.contracts.iter().zip(CLASSES) {
            let params = format!(
                r#"{{"block_id":"latest","class_hash":"{}"}}"#,
                contract.class
            );
            if self.chain.ask("starknet_getClass", &params).await.is_ok() {
                continue;
            }
            let declare = Declare {
                sender: owner.address,
                class_hash: contract.class,
                compiled_class_hash: contract.compiled,
                contract_class: class.to_owned(),
                nonce: Felt::from(self.nonce().await?),
                bounds: DECLARE,
            };
            let transaction = Transaction::from(declare).sign(self.chain_id, &owner.key);
            let method = "starknet_addDeclareTransaction";
            match self.submit(WHAT, method, &transaction.to_params()).await {
                // another process was faster
                Err(NetworkError::Node(_, RpcError::Returned(error)))
                    if error.code == code::CLASS_ALREADY_DECLARED => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// The calls that deploy all contracts and wire them, for one transaction.
    fn deployment(&self) -> Vec<Call> {
        let [registry, card, staking, usership, bridge] = self.contracts;
        let arguments = arguments(&self.accounts, self.token, &self.contracts);
        let deploy = |(contract, arguments): (&Contract, Vec<Felt>)| {
            let count = u64::try_from(arguments.len()).unwrap_or_default();
            // class, salt, not unique to the deployer, the constructor's arguments
            let mut args = vec![contract.class, SALT, Felt::ZERO, Felt::from(count)];
            args.extend(arguments);
            Call {
                to: known(DEPLOYER),
                selector: selector("deployContract"),
                args,
            }
        };
        let mut calls: Vec<_> = self.contracts.iter().zip(arguments).map(deploy).collect();
        let parts = [card, staking, usership, bridge].map(|part| part.address);
        let wire = selector("wire");
        calls.push(Call {
            to: registry.address,
            selector: wire,
            args: parts.to_vec(),
        });
        let args = vec![bridge.address];
        calls.push(Call {
            to: card.address,
            selector: selector("set_bridge"),
            args,
        });
        calls
    }

    async fn invoke(&self, what: &'static str, calls: Vec<Call>) -> Result<(), NetworkError> {
        let owner = &self.accounts.owner;
        let nonce = Felt::from(self.nonce().await?);
        let invoke = Invoke {
            sender: owner.address,
            calls,
            nonce,
            bounds: INVOKE,
        };
        let transaction = Transaction::from(invoke).sign(self.chain_id, &owner.key);
        self.submit(what, INVOKE_METHOD, &transaction.to_params())
            .await
    }

    async fn nonce(&self) -> Result<u64, NetworkError> {
        let nonce = self.chain.nonce(self.accounts.owner.address).await;
        nonce.map_err(|error| failed("reading a nonce", error))
    }

    async fn submit(
        &self,
        what: &'static str,
        method: &str,
        params: &str,
    ) -> Result<(), NetworkError> {
        let failed = |error| failed(what, error);
        let mut call = CallTrace::default();
        let hash = self
            .chain
            .add(method, params, None, &mut call)
            .await
            .map_err(failed)?;
        // the node executes a transaction before it answers
        let receipt = self.chain.receipt(hash).await.map_err(failed)?;
        let receipt = receipt.ok_or(NetworkError::Node(what, RpcError::MalformedAnswer))?;
        receipt
            .outcome
            .map_err(|reason| NetworkError::Reverted(what, reason))
    }

    /// The values of `[relay.pins]`, as TOML.
    pub(super) fn pins(&self) -> String {
        let mut text = format!(
            "chain_id = \"{}\"\naccount_class = \"{ACCOUNT_CLASS}\"\nowner = \"{}\"\n\
             verifier = \"{}\"\nfaucet = \"{}\"\ntoken = \"{TOKEN}\"\n\
             token_class = \"{TOKEN_CLASS}\"\nl1_bridge = \"{L1_BRIDGE}\"\n",
            self.chain_id.to_short_string().unwrap_or_default(),
            self.accounts.owner.address,
            self.accounts.verifier.address,
            self.accounts.faucet.address,
        );
        for (contract, (name, _)) in self.contracts.iter().zip(CLASSES) {
            let Contract { address, class, .. } = contract;
            text += &format!("{name} = \"{address}\"\n{name}_class = \"{class}\"\n");
        }
        text
    }
}

/// The token's class.
const TOKEN_CLASS: &str = "0x2e77ee61d4df3d988ee1f42ea5442e913862cc82c2584d212ecda76666498fc";
/// The salt of the contracts' addresses.
const SALT: Felt = Felt::ZERO;

fn contracts(accounts: &Accounts, token: Felt) -> [Contract; 5] {
    let hashes: serde_json::Value =
        serde_json::from_str(HASHES).expect("the embedded classes.json is JSON: a test reads it");
    let mut contracts = CLASSES.map(|(name, _)| {
        let hash = |which: &str| known(hashes[name][which].as_str().unwrap_or_default());
        Contract {
            class: hash("class_hash"),
            compiled: hash("compiled_class_hash"),
            address: Felt::ZERO,
        }
    });
    // each depends only on those before it
    for at in 0..contracts.len() {
        let arguments = &arguments(accounts, token, &contracts)[at];
        let class = contracts[at].class;
        contracts[at].address = contract_address(Felt::ZERO, SALT, class, arguments);
    }
    contracts
}

/// The constructor arguments of each contract.
fn arguments(accounts: &Accounts, token: Felt, contracts: &[Contract; 5]) -> [Vec<Felt>; 5] {
    let [owner, verifier] = [&accounts.owner, &accounts.verifier].map(|account| account.address);
    let [registry, card, ..] = contracts.map(|contract| contract.address);
    [
        vec![
            owner,
            verifier,
            known(ACCOUNT_CLASS),
            Felt::from(RECOVERY_DELAY),
        ],
        vec![owner, owner, registry],
        vec![owner, token, registry, Felt::from(UNBONDING_DELAY)],
        vec![verifier, registry],
        vec![owner, token, card, known(L1_BRIDGE)],
    ]
}

fn known(text: &str) -> Felt {
    Felt::parse(text).expect("a constant of this file, or of the embedded classes.json, is a felt")
}

fn failed(what: &'static str, error: RpcError) -> NetworkError {
    NetworkError::Node(what, error)
}
