//! The product's contracts: their state, what they permit, and their views.

use portcullis_filters::felt::Felt;
use portcullis_filters::tx::selector;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Seconds from the proposal of a recovery until it can be executed.
const RECOVERY_DELAY: u64 = 20;

/// The effect of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Register {
        identity: Felt,
        account: Felt,
    },
    Attest {
        account: Felt,
        id: Felt,
        /// Type, level, and when it expires.
        content: [Felt; 3],
    },
    Revoke {
        account: Felt,
    },
    Mint {
        recipient: Felt,
        card: [Felt; 2],
    },
    Usership {
        account: Felt,
        epoch: Felt,
        result: [Felt; 2],
    },
    Drip {
        recipient: Felt,
    },
    Propose {
        identity: Felt,
        account: Felt,
    },
    Execute {
        identity: Felt,
    },
    Cancel {
        identity: Felt,
    },
    RequireV2,
    /// An account of a user deploys itself.
    Deploy {
        account: Felt,
    },
    /// A transaction of a user, or of a stranger with our key.
    Other,
}

/// Selectors are digests: each is computed once.
macro_rules! selectors {
    ($($name:ident: $text:literal,)*) => {
        /// The selectors of the contracts.
        pub(super) struct Selectors { $(pub(super) $name: Felt),* }

        pub(super) static SELECTORS: LazyLock<Selectors> = LazyLock::new(|| Selectors {
            $($name: selector($text)),*
        });
    };
}

selectors! {
    register: "register_identity",
    attest: "attest_v2",
    revoke: "revoke",
    mint: "mint",
    usership: "submit_usership",
    transfer: "transfer",
    propose: "recovery_propose",
    execute: "recovery_execute",
    cancel: "recovery_cancel",
    require_v2: "require_v2",
    identity_of: "identity_of",
    account_of: "account_of",
    attestation: "attestation",
    attestation_of: "attestation_of",
    is_verified: "is_verified",
    minted_to: "minted_to",
    owner_of: "owner_of",
    usership_of: "usership_of",
    balance_of: "balance_of",
    recovery_of: "recovery_of",
    recovery_delay: "recovery_delay",
    v2_required: "verification_v2_required",
}

impl Action {
    /// The action of a call.
    pub(super) fn of(selector: Felt, args: &[Felt]) -> Self {
        let of = &*SELECTORS;
        match *args {
            [identity, account] if selector == of.register => Self::Register { identity, account },
            [account, id, kind, level, expires] if selector == of.attest => Self::Attest {
                account,
                id,
                content: [kind, level, expires],
            },
            [account, _] if selector == of.revoke => Self::Revoke { account },
            [recipient, low, high] if selector == of.mint => Self::Mint {
                recipient,
                card: [low, high],
            },
            [account, epoch, units, evidence] if selector == of.usership => Self::Usership {
                account,
                epoch,
                result: [units, evidence],
            },
            [recipient, ..] if selector == of.transfer => Self::Drip { recipient },
            [identity, account] if selector == of.propose => Self::Propose { identity, account },
            [identity] if selector == of.execute => Self::Execute { identity },
            [identity] if selector == of.cancel => Self::Cancel { identity },
            [] if selector == of.require_v2 => Self::RequireV2,
            _ => Self::Other,
        }
    }
}

/// An attestation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attestation {
    account: Felt,
    content: [Felt; 3],
    is_revoked: bool,
}

/// The state of the contracts.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    nonces: BTreeMap<Felt, u64>,
    bound: BTreeMap<Felt, Felt>,
    attestations: BTreeMap<Felt, Attestation>,
    /// The newest attestation of each account.
    attested: BTreeMap<Felt, Felt>,
    cards: BTreeMap<[Felt; 2], Felt>,
    results: BTreeMap<(Felt, Felt), [Felt; 2]>,
    /// The pending recoveries: the new account, and when it can be executed.
    recoveries: BTreeMap<Felt, (Felt, u64)>,
    pub(super) v2: bool,
    /// Accounts that are not deployed.
    missing: BTreeSet<Felt>,
}

fn or_zero(found: Option<&Felt>) -> Felt {
    found.copied().unwrap_or(Felt::ZERO)
}

fn flag(is: bool) -> Felt {
    Felt::from(u64::from(is))
}

impl State {
    /// The state before the first block, in which these accounts are not deployed.
    pub(super) fn new(v2: bool, missing: impl IntoIterator<Item = Felt>) -> Self {
        Self {
            v2,
            missing: missing.into_iter().collect(),
            ..Self::default()
        }
    }

    pub(super) fn nonce(&self, account: Felt) -> u64 {
        self.nonces.get(&account).copied().unwrap_or(0)
    }

    pub(super) fn is_deployed(&self, account: Felt) -> bool {
        !self.missing.contains(&account)
    }

    fn identity_of(&self, account: Felt) -> Felt {
        let found = self.bound.iter().find(|(_, bound)| **bound == account);
        found.map_or(Felt::ZERO, |(identity, _)| *identity)
    }

    fn attestation_of(&self, account: Felt) -> Option<(Felt, Attestation)> {
        let id = *self.attested.get(&account)?;
        Some((id, self.attestations[&id]))
    }

    /// Whether the requested state is there.
    pub(super) fn has(&self, action: Action) -> bool {
        match action {
            Action::Register { identity, account } => self.bound.get(&identity) == Some(&account),
            Action::Attest {
                account,
                id,
                content,
            } => self
                .attestations
                .get(&id)
                .is_some_and(|it| it.account == account && it.content == content && !it.is_revoked),
            Action::Revoke { account } => self
                .attestation_of(account)
                .is_some_and(|(_, it)| it.is_revoked),
            Action::Mint { recipient, card } => self.cards.get(&card) == Some(&recipient),
            Action::Usership {
                account,
                epoch,
                result,
            } => self.results.get(&(account, epoch)) == Some(&result),
            Action::Propose { identity, account } => self
                .recoveries
                .get(&identity)
                .is_some_and(|(new, _)| *new == account),
            Action::RequireV2 => self.v2,
            Action::Deploy { account } => self.is_deployed(account),
            Action::Execute { .. }
            | Action::Cancel { .. }
            | Action::Drip { .. }
            | Action::Other => false,
        }
    }

    /// Whether the contracts permit it.
    fn permits(&self, action: Action, time: u64) -> bool {
        match action {
            Action::Register { identity, account } => {
                !self.bound.contains_key(&identity) && self.identity_of(account) == Felt::ZERO
            }
            Action::Attest { account, id, .. } => {
                !self.attestations.contains_key(&id) && self.identity_of(account) != Felt::ZERO
            }
            Action::Revoke { account } => self
                .attestation_of(account)
                .is_some_and(|(_, it)| !it.is_revoked),
            Action::Mint { card, .. } => !self.cards.contains_key(&card),
            Action::Usership { account, epoch, .. } => {
                !self.results.contains_key(&(account, epoch))
            }
            Action::Propose { identity, account } => {
                self.bound.contains_key(&identity)
                    && !self.recoveries.contains_key(&identity)
                    && self.identity_of(account) == Felt::ZERO
            }
            Action::Execute { identity } => self
                .recoveries
                .get(&identity)
                .is_some_and(|(new, ready)| *ready <= time && self.identity_of(*new) == Felt::ZERO),
            Action::Cancel { identity } => self.recoveries.contains_key(&identity),
            Action::RequireV2 | Action::Deploy { .. } | Action::Drip { .. } | Action::Other => true,
        }
    }

    /// Executes a transaction; returns whether it succeeded.
    pub(super) fn execute(&mut self, tx: &super::chain::Tx, is_unlucky: bool, time: u64) -> bool {
        *self.nonces.entry(tx.sender).or_default() += 1;
        let succeeds = !is_unlucky && self.permits(tx.action, time);
        if succeeds {
            self.change(tx.action, time);
        }
        succeeds
    }

    fn change(&mut self, action: Action, time: u64) {
        match action {
            Action::Register { identity, account } => {
                self.bound.insert(identity, account);
            }
            Action::Attest {
                account,
                id,
                content,
            } => {
                let attestation = Attestation {
                    account,
                    content,
                    is_revoked: false,
                };
                self.attestations.insert(id, attestation);
                self.attested.insert(account, id);
            }
            Action::Revoke { account } => {
                let id = self.attested[&account];
                if let Some(attestation) = self.attestations.get_mut(&id) {
                    attestation.is_revoked = true;
                }
            }
            Action::Mint { recipient, card } => {
                self.cards.insert(card, recipient);
            }
            Action::Usership {
                account,
                epoch,
                result,
            } => {
                self.results.insert((account, epoch), result);
            }
            Action::Propose { identity, account } => {
                self.recoveries
                    .insert(identity, (account, time + RECOVERY_DELAY));
            }
            Action::Execute { identity } => {
                if let Some((account, _)) = self.recoveries.remove(&identity) {
                    self.bound.insert(identity, account);
                }
            }
            Action::Cancel { identity } => {
                self.recoveries.remove(&identity);
            }
            Action::RequireV2 => self.v2 = true,
            Action::Deploy { account } => {
                self.missing.remove(&account);
            }
            Action::Drip { .. } | Action::Other => {}
        }
    }

    /// The result of a view.
    pub(super) fn call(&self, view: Felt, args: &[Felt]) -> Vec<Felt> {
        let of = &*SELECTORS;
        let arg = |at: usize| args.get(at).copied().unwrap_or(Felt::ZERO);
        if view == of.identity_of {
            vec![self.identity_of(arg(0))]
        } else if view == of.account_of {
            vec![or_zero(self.bound.get(&arg(0)))]
        } else if view == of.minted_to || view == of.owner_of {
            vec![or_zero(self.cards.get(&[arg(0), arg(1)]))]
        } else if view == of.usership_of {
            let found = self.results.get(&(arg(0), arg(1)));
            found.copied().unwrap_or([Felt::ZERO; 2]).to_vec()
        } else if view == of.attestation {
            self.attestation(arg(0)).to_vec()
        } else if view == of.attestation_of {
            let id = or_zero(self.attested.get(&arg(0)));
            [[id].as_slice(), &self.attestation(id)].concat()
        } else if view == of.recovery_of {
            let found = self.recoveries.get(&arg(0)).copied();
            let (account, ready) = found.unwrap_or((Felt::ZERO, 0));
            vec![account, Felt::from(ready)]
        } else if view == of.recovery_delay {
            vec![Felt::from(RECOVERY_DELAY)]
        } else if view == of.v2_required {
            vec![flag(self.v2)]
        } else if view == of.is_verified {
            let revoked = self.attestation_of(arg(0));
            vec![flag(revoked.is_none_or(|(_, it)| !it.is_revoked))]
        } else if view == of.balance_of {
            vec![Felt::ZERO, Felt::from(1_u64)]
        } else {
            vec![Felt::from(1_u64)]
        }
    }

    /// Account, type, level, issued at, expires at, revoked.
    fn attestation(&self, id: Felt) -> [Felt; 6] {
        let Some(it) = self.attestations.get(&id) else {
            return [Felt::ZERO; 6];
        };
        let [kind, level, expires] = it.content;
        let issued = Felt::from(1_u64);
        [
            it.account,
            kind,
            level,
            issued,
            expires,
            flag(it.is_revoked),
        ]
    }
}
