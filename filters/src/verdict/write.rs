//! The permits of writes: users' transactions, and operations that the relay signs.
//!
//! A user's transaction is judged in two steps, because the sender's account is on the chain:
//! [`Unverified`] passed every check that needs no chain, and names the account to read.

use crate::felt::Felt;
use crate::operation::Operation;
use crate::policy::RelayPolicy;
use crate::rpc::Id;
use crate::tx::{Account, AllowedCall, Kind, Transaction};
use crate::verdict::Refusal;
use alloc::string::String;
use alloc::vec::Vec;

/// A user's transaction that passed every check that needs no chain.
#[derive(Debug)]
pub struct Unverified<'a>(TransactionPermit<'a>);

impl<'a> Unverified<'a> {
    pub(crate) fn new(permit: TransactionPermit<'a>) -> Self {
        Self(permit)
    }

    /// The client's request id, byte for byte.
    pub fn id(&self) -> Id<'a> {
        self.0.id
    }

    /// The name in logs and metrics.
    pub fn kind(&self) -> &'static str {
        self.0.kind()
    }

    /// The transaction's hash.
    pub fn hash(&self) -> Felt {
        self.0.hash
    }

    /// The account whose class and key must be read. `None` for a transaction that deploys its
    /// account: it carries the key, and was verified with it.
    pub fn sender(&self) -> Option<Felt> {
        (!self.0.is_deploy()).then_some(self.0.sender)
    }

    /// The address of the account that it deploys, if any.
    pub fn deployed(&self) -> Option<Felt> {
        self.0.is_deploy().then_some(self.0.sender)
    }

    /// Judges class and signature by the account of [`Self::sender`] on the chain.
    ///
    /// # Errors
    /// `class_not_approved` or `signature_invalid`, with the request's id.
    pub fn verify(
        self,
        policy: &RelayPolicy,
        account: Option<Account>,
    ) -> Result<TransactionPermit<'a>, Refusal> {
        let Self(permit) = self;
        if permit.is_deploy() {
            return Ok(permit);
        }
        let verdict = policy.verify(&permit.transaction, permit.hash, account);
        verdict.map_err(|refusal| refusal.with_id(Some(permit.id)))?;
        Ok(permit)
    }
}

/// A user's transaction that passed the whole policy.
#[derive(Debug)]
pub struct TransactionPermit<'a> {
    pub(crate) id: Id<'a>,
    pub(crate) transaction: Transaction,
    pub(crate) hash: Felt,
    pub(crate) sender: Felt,
    pub(crate) nonce: u64,
    pub(crate) calls: Vec<AllowedCall>,
}

impl<'a> TransactionPermit<'a> {
    /// The client's request id, byte for byte.
    pub fn id(&self) -> Id<'a> {
        self.id
    }

    /// Its name in logs, metrics and the journal.
    pub fn kind(&self) -> &'static str {
        if self.is_deploy() { DEPLOY_KIND } else { "invoke" }
    }

    /// The node's method that submits it.
    pub fn method(&self) -> &'static str {
        method_of(self.kind())
    }

    /// Whether it deploys its account.
    pub fn is_deploy(&self) -> bool {
        matches!(self.transaction.kind, Kind::DeployAccount { .. })
    }

    /// The transaction's hash.
    pub fn hash(&self) -> Felt {
        self.hash
    }

    /// The account that sends or deploys it.
    pub fn sender(&self) -> Felt {
        self.sender
    }

    /// The account's nonce.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The calls; empty if it deploys its account.
    pub fn calls(&self) -> &[AllowedCall] {
        &self.calls
    }

    /// The parameters of [`Self::method`], by name: the transaction as parsed.
    pub fn params(&self) -> String {
        self.transaction.to_params()
    }
}

const DEPLOY_KIND: &str = "deploy-account";

/// The node's method that submits a write with this name in the journal:
/// [`TransactionPermit::kind`] or an operation's name.
pub fn method_of(name: &str) -> &'static str {
    if name == DEPLOY_KIND { DEPLOY_ACCOUNT_METHOD } else { INVOKE_METHOD }
}

/// The node's method that submits an invoke.
pub const INVOKE_METHOD: &str = "starknet_addInvokeTransaction";
/// The node's method that submits an account's deployment.
pub const DEPLOY_ACCOUNT_METHOD: &str = "starknet_addDeployAccountTransaction";

/// An operation that passed the whole policy; the state of the chain is not checked yet.
#[derive(Debug)]
pub struct OperationPermit(Operation);

impl OperationPermit {
    pub(crate) fn new(operation: Operation) -> Self {
        Self(operation)
    }

    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.0
    }

    /// The body in canonical form.
    pub fn canonical(&self) -> String {
        self.0.canonical()
    }

    /// The digest, which identifies the operation.
    pub fn digest(&self) -> [u8; 32] {
        self.0.digest()
    }
}
