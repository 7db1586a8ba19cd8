//! Requests and their responses.

use super::chain::{Action, State};
use super::io::SimIo;
use super::machine::{HasAgenda as _, Process, Slot, fill};
use super::world::World;
use portcullis_filters::bearer::Tokens;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::felt::Felt;
use portcullis_filters::operations::{Operation, OperationKind};
use portcullis_filters::policy::{
    Caps, Contracts, Endpoint, Inspected, OperationPermit, RelayPolicy, TransactionPermit,
    Unverified,
};
use portcullis_filters::secret::{Secret, SecretKey};
use portcullis_filters::tx::{
    Account, Bounds, Call, DeployAccount, Invoke, Transaction, account_address, selector,
};
use portcullis_filters::txm::operation::{Answer, Task, operate};
use portcullis_filters::txm::outcome::{Outcome, Status};
use portcullis_filters::txm::settings::{Accounts, Pins};
use portcullis_filters::txm::transaction::{Approved, account, submit};
use portcullis_filters::verdict::Reason;
use std::sync::{Arc, LazyLock};

pub(super) static PINS: LazyLock<Pins> = LazyLock::new(|| Pins {
    chain_id: Felt::from_short_string("SN_SEPOLIA").expect("a short string"),
    contracts: contracts(),
    account_class: Felt::from(0xc1a55_u64),
    accounts: Accounts {
        owner: felt(0xa1),
        verifier: felt(0xa2),
        faucet: Some(felt(0xa3)),
    },
});

fn felt(number: u64) -> Felt {
    Felt::from(number)
}

fn contracts() -> Contracts {
    Contracts {
        token: felt(0xb1),
        staking: felt(0xb2),
        bridge: felt(0xb3),
        card: felt(0xb4),
        registry: felt(0xb5),
        usership: felt(0xb6),
    }
}

fn policy() -> RelayPolicy {
    RelayPolicy {
        tokens: Tokens::new(&[Secret::new("0123456789abcdef0123456789abcdef".into())])
            .expect("a token"),
        trusted_proxies: TrustedProxies::default(),
        chain_id: PINS.chain_id,
        account_class: PINS.account_class,
        contracts: contracts(),
        caps: Caps {
            max_calls: 8,
            max_felts: 256,
            max_l2_gas: 1_000_000_000,
            max_fee: 10_000_000_000_000_000_000,
        },
        operations: OperationKind::ALL.to_vec(),
        assurance_types: vec!["KYC".into()],
        assurance_levels: vec![1],
        usership_epochs: 10..=20,
    }
}

/// Something that a client wants done.
pub(super) enum Wanted {
    Operation(Box<OperationPermit>),
    Transaction(Box<TransactionPermit<'static>>, Box<Unverified<'static>>),
}

/// The number of users with an account.
const USERS: u64 = 4;
/// The nonces of a user's transactions; with the first one, the last user deploys the account.
const NONCES: u64 = 6;

/// The account of a user.
fn address(user: u64) -> Felt {
    account_address(key(user).public_key(), PINS.account_class)
}

/// The contracts' state before the first block.
pub(super) fn initial(v2: bool) -> State {
    State::new(v2, [address(USERS)])
}

impl Wanted {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Operation(permit) => permit.operation().kind().name(),
            Self::Transaction(permit, _) => permit.kind(),
        }
    }

    /// The digest of an operation.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        match self {
            Self::Operation(permit) => Some(permit.digest()),
            Self::Transaction(..) => None,
        }
    }

    /// The state that an operation leads to.
    pub(super) fn action(&self) -> Option<Action> {
        let Self::Operation(permit) = self else {
            return None;
        };
        match permit.operation() {
            Operation::Register(it) => Some(Action::Register {
                identity: it.identity,
                account: it.account,
            }),
            Operation::MintCard(it) => Some(Action::Mint {
                recipient: it.recipient,
                card: it.card_id.felts(),
            }),
            Operation::SubmitUsership(it) => Some(Action::Usership {
                account: it.account,
                epoch: Felt::from(it.epoch),
                result: [Felt::from(it.units), it.evidence],
            }),
            Operation::VerificationAttest(it) => Some(Action::Attest {
                account: it.account,
                id: it.attestation_id,
                content: [
                    it.assurance_type.felt(),
                    Felt::from(u64::from(it.assurance_level)),
                    Felt::from(it.expires_at),
                ],
            }),
            Operation::VerificationRevoke(it) => Some(Action::Revoke {
                account: it.account,
            }),
            Operation::RecoveryPropose(it) => Some(Action::Propose {
                identity: it.identity,
                account: it.new_account,
            }),
            Operation::RequireV2(_) => Some(Action::RequireV2),
            _ => None,
        }
    }
}

/// All requests that a client may send; the first is benign.
pub(super) static CATALOG: LazyLock<Vec<Wanted>> = LazyLock::new(|| {
    let keys: Vec<SecretKey> = (1..=4).map(key).collect();
    let accounts: Vec<(Felt, Felt)> = keys
        .iter()
        .map(|key| {
            (
                account_address(key.public_key(), PINS.account_class),
                key.public_key(),
            )
        })
        .collect();
    let mut all = Vec::new();
    for identity in 0..4_u64 {
        for (at, (account, key)) in accounts.iter().enumerate() {
            let distance = (at as u64).abs_diff(identity);
            let body = |name: &str| {
                format!(
                    r#"{{"identity":"0x{:x}","{name}":"{account}","public_key":"{key}"}}"#,
                    0x10 + identity
                )
            };
            if distance <= 1 {
                all.push(operation(OperationKind::FaucetDrip, &body("recipient")));
                all.push(operation(OperationKind::FaucetDrip, &body("recipient")));
                all.push(operation(OperationKind::Register, &body("account")));
            }
        }
    }
    for (account, _) in &accounts {
        for card in 0..3 {
            let body = format!(r#"{{"recipient":"{account}","card_id":"{card}"}}"#);
            all.push(operation(OperationKind::MintCard, &body));
        }
        for epoch in 10..12 {
            let body = format!(
                r#"{{"account":"{account}","epoch":{epoch},"units":"1","evidence":"0x0"}}"#
            );
            all.push(operation(OperationKind::SubmitUsership, &body));
        }
    }
    for (number, key) in (1..).zip(&keys) {
        let first = u64::from(number == USERS);
        all.extend((first..NONCES).map(|nonce| invoke(key, nonce, 0)));
        // another transaction with the same nonce
        all.extend((1..NONCES).map(|nonce| invoke(key, nonce, 1)));
        if number == USERS {
            all.push(deployment(key));
        }
    }
    for (account, key) in &accounts {
        all.extend(verifications(*account));
        all.extend(recoveries(*account, *key));
    }
    let confirmed = r#"{"confirm":"ACTIVATE PERMANENT V2 VERIFICATION"}"#;
    all.push(operation(OperationKind::RequireV2, confirmed));
    all.extend(fresh(&accounts));
    all
});

impl Wanted {
    /// Whether only one of the two can be carried out: transactions of one nonce, or drips that share
    /// an identity or a recipient.
    fn is_rival(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Transaction(one, _), Self::Transaction(other, _)) => {
                let is_slot = (one.sender(), one.nonce()) == (other.sender(), other.nonce());
                is_slot && one.hash() != other.hash()
            }
            (Self::Operation(one), Self::Operation(other)) => {
                match (one.operation(), other.operation()) {
                    (Operation::FaucetDrip(one), Operation::FaucetDrip(other)) => {
                        (one.identity == other.identity) != (one.recipient == other.recipient)
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

/// The rivals of each request of the catalog.
pub(super) static RIVALS: LazyLock<Vec<Vec<usize>>> = LazyLock::new(|| {
    let of = |one: &Wanted| {
        let is_rival = |(at, other): (usize, &Wanted)| one.is_rival(other).then_some(at);
        CATALOG.iter().enumerate().filter_map(is_rival).collect()
    };
    CATALOG.iter().map(of).collect()
});

/// The last requests of the catalog, which clients make only in the end.
pub(super) const FRESH: usize = 9;

fn fresh(accounts: &[(Felt, Felt)]) -> Vec<Wanted> {
    let new = key(77);
    let account = account_address(new.public_key(), PINS.account_class);
    let public_key = new.public_key();
    let body =
        format!(r#"{{"identity":"0x99","recipient":"{account}","public_key":"{public_key}"}}"#);
    let mut fresh = vec![operation(OperationKind::FaucetDrip, &body)];
    for (account, _) in accounts {
        let body = format!(r#"{{"recipient":"{account}","card_id":"200"}}"#);
        fresh.push(operation(OperationKind::MintCard, &body));
        let body = format!(r#"{{"account":"{account}","epoch":15,"units":"1","evidence":"0x0"}}"#);
        fresh.push(operation(OperationKind::SubmitUsership, &body));
    }
    fresh
}

fn verifications(account: Felt) -> Vec<Wanted> {
    let attest = |id: u64| {
        let body = format!(
            r#"{{"account":"{account}","attestation_id":"0x{id:x}","assurance_type":"KYC","assurance_level":1,"expires_at":"2036-01-01T00:00:00Z"}}"#
        );
        operation(OperationKind::VerificationAttest, &body)
    };
    let body = format!(r#"{{"account":"{account}","reason":"FRAUD"}}"#);
    let revoke = operation(OperationKind::VerificationRevoke, &body);
    vec![attest(1), attest(2), revoke]
}

/// Recoveries of two identities to an account.
fn recoveries(account: Felt, key: Felt) -> Vec<Wanted> {
    let mut all = Vec::new();
    for identity in ["0x10", "0x11"] {
        let body = format!(
            r#"{{"identity":"{identity}","new_account":"{account}","new_public_key":"{key}"}}"#
        );
        all.push(operation(OperationKind::RecoveryPropose, &body));
        let body = format!(r#"{{"identity":"{identity}"}}"#);
        all.push(operation(OperationKind::RecoveryExecute, &body));
        all.push(operation(OperationKind::RecoveryCancel, &body));
    }
    all
}

fn key(number: u64) -> SecretKey {
    SecretKey::parse(&Secret::new(format!("0x{number:x}234").into())).expect("a key")
}

fn operation(kind: OperationKind, body: &str) -> Wanted {
    match policy().inspect(Endpoint::Operation(kind), body.as_bytes(), 0) {
        Ok(Inspected::Operation(permit)) => Wanted::Operation(Box::new(permit)),
        other => panic!("{kind:?}: {other:?}"),
    }
}

const BOUNDS: Bounds = Bounds {
    l1_gas: (0, 1),
    l1_data_gas: (1, 1),
    l2_gas: (1, 1),
};

fn invoke(key: &SecretKey, nonce: u64, amount: u64) -> Wanted {
    let call = Call {
        to: contracts().card,
        selector: selector("burn"),
        args: vec![felt(7 + amount), felt(0)],
    };
    let invoke = Invoke {
        sender: account_address(key.public_key(), PINS.account_class),
        calls: vec![call],
        nonce: felt(nonce),
        bounds: BOUNDS,
    };
    transaction(key, invoke.into(), "starknet_addInvokeTransaction")
}

fn deployment(key: &SecretKey) -> Wanted {
    let deploy = DeployAccount {
        class_hash: PINS.account_class,
        public_key: key.public_key(),
        bounds: BOUNDS,
    };
    transaction(key, deploy.into(), "starknet_addDeployAccountTransaction")
}

fn transaction(key: &SecretKey, transaction: Transaction, method: &str) -> Wanted {
    let params = transaction.sign(PINS.chain_id, key).to_params();
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let (policy, body) = (policy(), &*body.leak());
    let inspected = || match policy.inspect(Endpoint::Rpc, body.as_bytes(), 0) {
        Ok(Inspected::Transaction(unverified)) => unverified,
        other => panic!("{other:?}"),
    };
    let account = Account {
        class_hash: PINS.account_class,
        public_key: key.public_key(),
    };
    let permit = inspected().verify(&policy, Some(account));
    let permit = permit.expect("it is signed");
    Wanted::Transaction(Box::new(permit), Box::new(inspected()))
}

/// A request: what is wanted, with which key.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) wanted: usize,
    pub(super) key: Option<String>,
    /// The client's action, which the relay never sees.
    pub(super) action: u64,
}

impl Request {
    pub(super) fn under_second_key(&self) -> Self {
        let key = self.key.as_ref().map(|key| format!("{key}-2"));
        Self {
            key,
            ..self.clone()
        }
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) kind: ReplyKind,
    pub(super) hash: Option<Felt>,
    /// Seconds until a retry can succeed.
    pub(super) retry_after: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyKind {
    Written,
    Already,
    Pending,
    Refused(Reason),
}

impl Reply {
    fn of(answer: &Answer) -> Self {
        match answer {
            Answer::First(200, hash) => Self {
                kind: ReplyKind::Written,
                hash: Felt::parse(hash),
                retry_after: None,
            },
            Answer::First(_, hash) => {
                let kind = ReplyKind::Refused(Reason::Reverted);
                Self {
                    kind,
                    hash: Felt::parse(hash),
                    retry_after: None,
                }
            }
            Answer::Outcome(outcome) => Self::of_outcome(outcome),
        }
    }

    fn of_outcome(outcome: &Outcome) -> Self {
        let kind = match &outcome.status {
            Status::Written => ReplyKind::Written,
            Status::Already => ReplyKind::Already,
            Status::Pending => ReplyKind::Pending,
            Status::Reverted(refusal)
            | Status::Open(refusal)
            | Status::Refused(refusal)
            | Status::StoreFailed(refusal) => ReplyKind::Refused(refusal.reason),
        };
        Self {
            kind,
            hash: outcome.transaction_hash,
            retry_after: outcome.retry_after,
        }
    }

    /// Whether the client repeats its request.
    pub(super) fn is_open(&self) -> bool {
        use Reason::{
            InProgress, NonceConflict, OutcomeUnknown, Overloaded, PinsUnproven, RefusedByChain,
            StoreUnavailable, UpstreamTimeout, UpstreamUnreachable,
        };
        match self.kind {
            ReplyKind::Pending => true,
            ReplyKind::Refused(reason) => matches!(
                reason,
                InProgress
                    | NonceConflict
                    | OutcomeUnknown
                    | Overloaded
                    | PinsUnproven
                    | RefusedByChain
                    | StoreUnavailable
                    | UpstreamTimeout
                    | UpstreamUnreachable
            ),
            ReplyKind::Written | ReplyKind::Already => false,
        }
    }
}

impl World {
    fn sign_of_user(&mut self, permit: &TransactionPermit<'_>) {
        let (hash, sender, nonce) = (permit.hash(), permit.sender(), permit.nonce());
        let action = if permit.is_deploy() {
            Action::Deploy { account: sender }
        } else {
            Action::Other
        };
        self.signed.insert(
            hash,
            super::chain::Tx {
                hash,
                sender,
                nonce,
                action,
            },
        );
        self.texts.insert(permit.params(), hash);
    }

    /// Sends a request to a relay; the slot has its response, or `None` if the relay crashed.
    pub(super) fn send(&mut self, relay: Process, request: &Request) -> Slot<Option<Reply>> {
        let slot = Slot::new();
        let Some(io) = self.relays[relay].io.clone() else {
            fill(self.agenda(), &slot, None);
            return slot;
        };
        self.relays[relay].requests.push(slot.clone());
        let begun = self.begin(relay, request);
        let (answered, request) = (slot.clone(), request.clone());
        self.agenda().start(relay, async move {
            io.world.lock().arrive(begun.watch);
            let reply = match &CATALOG[request.wanted] {
                Wanted::Operation(permit) => {
                    let task = Task::new(permit, request.key.as_deref(), &Arc::new(()), "");
                    Reply::of(&operate(&io, &task).await)
                }
                Wanted::Transaction(permit, unverified) => {
                    io.world.lock().sign_of_user(permit);
                    transact(&io, permit, unverified).await
                }
            };
            let mut world = io.world.lock();
            world.judge_reply(&request, begun, &reply);
            fill(world.agenda(), &answered, Some(reply));
        });
        slot
    }
}

/// What the handler does: it reads the sender's class, and submits what is verified.
async fn transact(
    io: &Arc<SimIo>,
    permit: &TransactionPermit<'static>,
    unverified: &Unverified<'static>,
) -> Reply {
    let outcome = match account(&**io, unverified).await {
        Ok((_, Some(account))) if account.class_hash != PINS.account_class => {
            Outcome::refused(Reason::ClassNotApproved, "the class is not approved")
        }
        Ok((epoch, _)) => submit(io, Approved::new(permit, epoch, &Arc::new(()))).await,
        Err(why) => why.into(),
    };
    Reply::of_outcome(&outcome)
}
