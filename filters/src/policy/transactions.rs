//! The policy of users' transactions: cheap checks first.
//!
//! A transaction is judged in two steps, because the sender's account is on the chain:
//! [`Unverified`] is well-formed, and names the account to read; [`TransactionPermit`] is signed by
//! it, too. Only this file creates either. Both say whether the configuration admits the
//! transaction: the journal answers one that was sent before the configuration changed.

use super::{Finding, RelayPolicy, hints};
use crate::felt::Felt;
use crate::named::named;
use crate::rpc::json::{Json, MemberError};
use crate::rpc::{Envelope, Id};
use crate::stark::{is_public_key, verify};
use crate::tx::calls::{self, CalldataError};
use crate::tx::{Account, AllowedCall, Bounds, Kind, Mode, Transaction, TransactionError};
use crate::verdict::{Reason, Refusal};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

named! {
    /// The kind of a user's transaction, by its name in logs, metrics and the journal.
    pub enum TransactionKind {
        /// It calls contracts.
        Invoke = "invoke",
        /// It deploys its account.
        DeployAccount = "deploy-account",
    }
}

/// The node's method that submits a write with this name in the journal:
/// [`TransactionPermit::kind`] or an operation's name.
pub fn method_of(name: &str) -> &'static str {
    if name == TransactionKind::DeployAccount.name() {
        DEPLOY_ACCOUNT_METHOD
    } else {
        INVOKE_METHOD
    }
}

/// The node's method that submits an invoke.
pub const INVOKE_METHOD: &str = "starknet_addInvokeTransaction";
/// The node's method that submits an account's deployment.
pub const DEPLOY_ACCOUNT_METHOD: &str = "starknet_addDeployAccountTransaction";

/// A well-formed transaction of a user, with a hash.
#[derive(Debug)]
pub struct Unverified<'a>(TransactionPermit<'a>);

impl<'a> Unverified<'a> {
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

    /// Whether the configuration admits its calls and its fee.
    ///
    /// # Errors
    /// Returns the refusal, with the request's id.
    pub fn admission(&self) -> Result<(), &Refusal> {
        self.0.admission()
    }

    /// The account whose class and key must be read. `None` for a transaction that deploys its
    /// account: it carries the key, with which it is verified.
    pub fn sender(&self) -> Option<Felt> {
        (!self.0.is_deploy()).then_some(self.0.sender)
    }

    /// The address of the account that the transaction deploys, if any.
    pub fn deployed(&self) -> Option<Felt> {
        self.0.is_deploy().then_some(self.0.sender)
    }

    /// Judges class and signature by the account of [`Self::sender`] on the chain.
    ///
    /// # Errors
    /// Returns `class_not_approved` or `signature_invalid`, with the request's id.
    pub fn verify(
        self,
        policy: &RelayPolicy,
        account: Option<Account>,
    ) -> Result<TransactionPermit<'a>, Refusal> {
        let Self(permit) = self;
        let account = match &permit.transaction.kind {
            // it was verified with its key when it was admitted
            Kind::DeployAccount { .. } if permit.admission.is_ok() => return Ok(permit),
            kind => deployed_account(kind).or(account),
        };
        let verdict = policy.verify(&permit.transaction, permit.hash, account);
        verdict.map_err(|refusal| refusal.with_id(Some(permit.id)))?;
        Ok(permit)
    }
}

#[cfg(test)]
impl Unverified<'static> {
    /// A transaction taken as passed, for tests of later stages.
    pub(crate) fn passed(transaction: Transaction) -> Self {
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
        let id = Envelope::parse(body).expect("it is a request").id;
        let (hash, sender) = (transaction.hash(Felt::ZERO), transaction.sender());
        Self(TransactionPermit {
            id,
            transaction,
            hash,
            sender,
            nonce: 0,
            calls: Vec::new(),
            admission: Ok(()),
        })
    }

    /// Makes it one that the policy does not admit.
    pub(crate) fn refused(mut self, refusal: Refusal) -> Self {
        self.0.admission = Err(Box::new(refusal));
        self
    }
}

/// A well-formed transaction that its user signed, and whether the policy admits it.
#[derive(Debug)]
pub struct TransactionPermit<'a> {
    id: Id<'a>,
    transaction: Transaction,
    hash: Felt,
    sender: Felt,
    nonce: u64,
    calls: Vec<AllowedCall>,
    admission: Result<(), Box<Refusal>>,
}

impl<'a> TransactionPermit<'a> {
    /// Whether the configuration admits its calls and its fee. One that is not admitted is
    /// answered from the journal, and not sent for the first time.
    ///
    /// # Errors
    /// Returns the refusal, with the request's id.
    pub fn admission(&self) -> Result<(), &Refusal> {
        match &self.admission {
            Ok(()) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// The client's request id, byte for byte.
    pub fn id(&self) -> Id<'a> {
        self.id
    }

    /// The name of its kind in logs, metrics and the journal.
    pub fn kind(&self) -> &'static str {
        if self.is_deploy() {
            TransactionKind::DeployAccount.name()
        } else {
            TransactionKind::Invoke.name()
        }
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

    /// The calls; empty if it deploys its account, or is not admitted.
    pub fn calls(&self) -> &[AllowedCall] {
        &self.calls
    }

    /// The parameters of [`Self::method`], by name: the transaction as parsed.
    pub fn params(&self) -> String {
        self.transaction.to_params()
    }
}

impl RelayPolicy {
    /// Judges the body of `POST /rpc`.
    pub(super) fn transaction<'a>(
        &self,
        body: &'a [u8],
        passed: &mut impl FnMut(Finding<'_>),
    ) -> Result<Unverified<'a>, Refusal> {
        let Envelope { id, method, params } = Envelope::parse(body)?;
        passed(Finding::Envelope(id.as_str()));
        let permit = self.submission(id, &method, params, passed);
        permit
            .map(Unverified)
            .map_err(|refusal| refusal.with_id(Some(id)))
    }

    fn submission<'a>(
        &self,
        id: Id<'a>,
        method: &str,
        params: Option<Json<'_>>,
        passed: &mut impl FnMut(Finding<'_>),
    ) -> Result<TransactionPermit<'a>, Refusal> {
        let name = match method {
            INVOKE_METHOD => "invoke_transaction",
            DEPLOY_ACCOUNT_METHOD => "deploy_account_transaction",
            _ => {
                let message = "this method is not one of the relay's write methods";
                let refusal = Refusal::new(Reason::MethodNotAllowed, message);
                return Err(refusal.with_hint(hints::instead_of_write(method)));
            }
        };
        passed(Finding::Method(method));
        let transaction = Transaction::parse(only_param(name, params)?).map_err(refusal)?;
        if matches!(transaction.kind, Kind::Invoke { .. }) != (method == INVOKE_METHOD) {
            return Err(invalid("type must be the one that this method submits"));
        }
        self.plain(&transaction)?;
        passed(Finding::Transaction(&transaction));
        let nonce = match &transaction.kind {
            Kind::Invoke { .. } => {
                let nonce = transaction.nonce.to_u64();
                nonce.ok_or_else(|| invalid("nonce must have at most 64 bits"))?
            }
            Kind::DeployAccount {
                class_hash,
                salt,
                constructor_calldata,
            } => {
                self.deployment(*class_hash, *salt, constructor_calldata)?;
                0
            }
            Kind::Declare { .. } => return Err(invalid("DECLARE is not accepted")),
        };
        let hash = transaction.hash(self.chain_id);
        let sender = transaction.sender();
        let (calls, admission) = match self.admits_transaction(&transaction, passed) {
            Ok(calls) => (calls, Ok(())),
            Err(refusal) => (Vec::new(), Err(Box::new(refusal.with_id(Some(id))))),
        };
        if admission.is_ok() {
            passed(Finding::Hash(hash));
        }
        let deployed = deployed_account(&transaction.kind);
        if deployed.is_some() && admission.is_ok() {
            self.verify(&transaction, hash, deployed)?;
        }
        Ok(TransactionPermit {
            id,
            transaction,
            hash,
            sender,
            nonce,
            calls,
            admission,
        })
    }

    /// Judges what depends on the configuration: the calls, and the fee.
    fn admits_transaction(
        &self,
        transaction: &Transaction,
        passed: &mut impl FnMut(Finding<'_>),
    ) -> Result<Vec<AllowedCall>, Refusal> {
        let calls = match &transaction.kind {
            Kind::Invoke {
                sender, calldata, ..
            } => self.calls(*sender, calldata)?,
            Kind::DeployAccount { .. } | Kind::Declare { .. } => Vec::new(),
        };
        passed(Finding::Calls(&calls));
        self.fee(&transaction.bounds)?;
        Ok(calls)
    }

    /// Refuses fields that no transaction here needs.
    fn plain(&self, transaction: &Transaction) -> Result<(), Refusal> {
        let Transaction {
            query,
            tip,
            paymaster_data,
            nonce_mode,
            fee_mode,
            ..
        } = transaction;
        if *query {
            return Err(refusal(TransactionError::Version));
        }
        if *tip != 0 {
            return Err(Refusal::new(Reason::TipNotZero, "tip must be 0x0"));
        }
        if !paymaster_data.is_empty() {
            return Err(Refusal::new(
                Reason::PaymasterData,
                "paymaster_data must be empty",
            ));
        }
        match &transaction.kind {
            Kind::Invoke {
                account_deployment_data,
                ..
            } if !account_deployment_data.is_empty() => {
                let message = "account_deployment_data must be empty";
                return Err(Refusal::new(Reason::AccountDeploymentData, message));
            }
            Kind::DeployAccount { .. } if transaction.nonce != Felt::ZERO => {
                let message = "the nonce of an account's first transaction is 0x0";
                return Err(Refusal::new(Reason::ArgumentNotAllowed, message));
            }
            _ => {}
        }
        if [*nonce_mode, *fee_mode] != [Mode::L1; 2] {
            let message = "both data availability modes must be L1";
            return Err(Refusal::new(Reason::DataAvailabilityMode, message));
        }
        Ok(())
    }

    /// Decodes the calldata and judges each call.
    fn calls(&self, sender: Felt, calldata: &[Felt]) -> Result<Vec<AllowedCall>, Refusal> {
        let max_felts = self.caps.max_felts;
        if calldata.len() > max_felts {
            let message = format!(
                "calldata has {} felts; at most {max_felts} are accepted",
                calldata.len()
            );
            return Err(Refusal::new(Reason::CalldataTooLarge, message));
        }
        let max_calls = self.caps.max_calls;
        let calls = calls::decode(calldata, max_calls).map_err(|error| match error {
            CalldataError::TooManyCalls => {
                let message = format!("a transaction may make at most {max_calls} calls");
                Refusal::new(Reason::TooManyCalls, message)
            }
            CalldataError::Malformed => {
                let message = "calldata must be one Cairo 1 Array<Call> with at least one call";
                Refusal::new(Reason::CalldataMalformed, message)
            }
        })?;
        if calls.iter().any(|call| call.to == sender) {
            // its own entrypoints can upgrade the account and change its key
            let message = "an account must not call itself";
            return Err(Refusal::new(Reason::ContractNotAllowed, message));
        }
        calls
            .into_iter()
            .map(|call| AllowedCall::judge(call, &self.contracts))
            .collect()
    }

    /// Checks that the class is approved, and that the address follows from a valid key.
    fn deployment(&self, class: Felt, salt: Felt, constructor: &[Felt]) -> Result<(), Refusal> {
        if class != self.account_class {
            return Err(class_not_approved());
        }
        if constructor != [salt] {
            let message = "contract_address_salt and the one constructor argument must be the \
                           public key";
            return Err(Refusal::new(Reason::AddressMismatch, message));
        }
        if !is_public_key(salt) {
            let message = "the public key must be a point of the STARK curve, not zero";
            return Err(Refusal::new(Reason::PublicKeyInvalid, message));
        }
        Ok(())
    }

    fn fee(&self, bounds: &Bounds) -> Result<(), Refusal> {
        let (max_l2_gas, max_fee) = (self.caps.max_l2_gas, self.caps.max_fee);
        if bounds.l2_gas.0 > max_l2_gas {
            let message = format!("l2_gas.max_amount must be at most {max_l2_gas}");
            return Err(Refusal::new(Reason::FeeBoundExceeded, message));
        }
        if bounds.max_fee().is_none_or(|fee| fee > max_fee) {
            let message = format!("resource_bounds must allow a fee of at most {max_fee} fri");
            return Err(Refusal::new(Reason::FeeBoundExceeded, message));
        }
        Ok(())
    }

    /// Verifies the signature by the account's class and key.
    pub(crate) fn verify(
        &self,
        transaction: &Transaction,
        hash: Felt,
        account: Option<Account>,
    ) -> Result<(), Refusal> {
        let account = account.filter(|account| account.class_hash == self.account_class);
        let Account { public_key, .. } = account.ok_or_else(class_not_approved)?;
        match transaction.signature.as_slice() {
            [r, s] if verify(public_key, hash, [*r, *s]) => Ok(()),
            _ => {
                let message = "signature must be [r, s] of the account's key over this transaction";
                Err(Refusal::new(Reason::SignatureInvalid, message))
            }
        }
    }
}

fn invalid(message: impl Into<alloc::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::InvalidRequest, message)
}

/// The account that a transaction deploys, as its fields say.
fn deployed_account(kind: &Kind) -> Option<Account> {
    match kind {
        Kind::DeployAccount {
            class_hash,
            salt: public_key,
            ..
        } => Some(Account {
            class_hash: *class_hash,
            public_key: *public_key,
        }),
        Kind::Invoke { .. } | Kind::Declare { .. } => None,
    }
}

fn class_not_approved() -> Refusal {
    Refusal::new(
        Reason::ClassNotApproved,
        "the account is not of the approved class",
    )
}

/// The one parameter, by name or by position.
fn only_param<'a>(name: &'static str, params: Option<Json<'a>>) -> Result<Json<'a>, Refusal> {
    let missing = || invalid(format!("params must be exactly {name}"));
    match params.ok_or_else(missing)? {
        Json::Array(items) => {
            let mut items = items.into_iter();
            items
                .next()
                .filter(|_| items.next().is_none())
                .ok_or_else(missing)
        }
        object => match object.members(&[name]) {
            Ok([value]) => value.ok_or_else(missing),
            Err(MemberError::Duplicate(name)) => Err(invalid(format!("{name} appears twice"))),
            Err(MemberError::Unknown | MemberError::NotAnObject) => Err(missing()),
        },
    }
}

fn refusal(error: TransactionError) -> Refusal {
    match error {
        TransactionError::Version => Refusal::new(
            Reason::TransactionVersion,
            "version must be exactly \"0x3\"",
        ),
        TransactionError::Proof => {
            let message = "proof and proof_facts must be absent, not empty";
            Refusal::new(Reason::ProofData, message)
        }
        TransactionError::Unknown(name) => {
            invalid(format!("unknown member {name} of the transaction"))
        }
        TransactionError::Field(error) => invalid(error.to_string()),
    }
}
