//! The transactions that the relay signs, of the same type as those that users send.
//!
//! Built unsigned; [`Transaction::sign`] signs them. No tip, no paymaster, data on L1.

use super::calls::{self, Call};
use super::{Bounds, Kind, Mode, Transaction};
use crate::felt::Felt;
use crate::secret::SecretKey;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A transaction of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoke {
    /// The account.
    pub sender: Felt,
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// The account's next nonce.
    pub nonce: Felt,
    /// The resource bounds.
    pub bounds: Bounds,
}

/// The first transaction of an account: it deploys itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployAccount {
    /// The account's class.
    pub class_hash: Felt,
    /// The key that controls it, and from which its address follows.
    pub public_key: Felt,
    /// The resource bounds.
    pub bounds: Bounds,
}

/// A transaction that declares a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declare {
    /// The account.
    pub sender: Felt,
    /// The hash of the class.
    pub class_hash: Felt,
    /// The hash of the compiled class.
    pub compiled_class_hash: Felt,
    /// The class as JSON text, written verbatim.
    pub contract_class: String,
    /// The account's next nonce.
    pub nonce: Felt,
    /// The resource bounds.
    pub bounds: Bounds,
}

impl From<Invoke> for Transaction {
    fn from(invoke: Invoke) -> Self {
        let kind = Kind::Invoke {
            sender: invoke.sender,
            calldata: calls::encode(&invoke.calls),
            account_deployment_data: Vec::new(),
        };
        Self::unsigned(kind, invoke.nonce, invoke.bounds)
    }
}

impl From<DeployAccount> for Transaction {
    fn from(deploy: DeployAccount) -> Self {
        let kind = Kind::DeployAccount {
            class_hash: deploy.class_hash,
            salt: deploy.public_key,
            constructor_calldata: vec![deploy.public_key],
        };
        Self::unsigned(kind, Felt::ZERO, deploy.bounds)
    }
}

impl From<Declare> for Transaction {
    fn from(declare: Declare) -> Self {
        let kind = Kind::Declare {
            sender: declare.sender,
            class_hash: declare.class_hash,
            compiled_class_hash: declare.compiled_class_hash,
            contract_class: declare.contract_class,
        };
        Self::unsigned(kind, declare.nonce, declare.bounds)
    }
}

impl Transaction {
    fn unsigned(kind: Kind, nonce: Felt, bounds: Bounds) -> Self {
        Self {
            kind,
            query: false,
            signature: Vec::new(),
            nonce,
            bounds,
            tip: 0,
            paymaster_data: Vec::new(),
            nonce_mode: Mode::L1,
            fee_mode: Mode::L1,
        }
    }

    /// The same of the query version, which can be estimated and never submitted; unsigned.
    pub fn query(self) -> Self {
        Self { query: true, signature: Vec::new(), ..self }
    }

    /// The same, signed for a chain.
    pub fn sign(mut self, chain_id: Felt, key: &SecretKey) -> Self {
        self.signature = key.sign(self.hash(chain_id)).to_vec();
        self
    }
}
