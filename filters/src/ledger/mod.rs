//! The decisions of the relay's journal: facts and a command in, changes and a reply out.
//!
//! The store locks the end of the journal, reads the facts of a command, decides here, writes the
//! changes with their journal entries, and commits. So every rule of a write is in this folder, and
//! a simulation that keeps its rows in maps decides the same.
//!
//! A *slot* is a chain epoch, an account and a nonce: a chain has at most one transaction in it.
//! Reading order: [`state`](IntentState), `intent.rs`, `intention.rs` (whether a transaction is
//! stored), `change.rs` (what follows from a change of one), `binding.rs`, `budget.rs`,
//! `double.rs`, `key.rs`, `epoch.rs`; `group.rs` (commands that share a transaction), `owned.rs`;
//! `refusal.rs`.

mod binding;
mod budget;
mod change;
mod double;
mod epoch;
pub mod group;
mod intent;
mod intention;
mod key;
mod owned;
mod refusal;
mod state;
#[cfg(test)]
mod tests;

pub use binding::{Binding, Bound, Pair, Rebinding};
pub use budget::{Budget, Budgets, DAY_US, MINUTE_US, OverBudget, gfri, minutes};
pub use change::{Change, ChangedIntent, Steps, change};
pub use double::Returning;
pub use epoch::Agreement;
pub use intent::{FILL_NONCE, Inclusion, Intent, IntentId, NewIntent, Requested};
pub use intention::{Facts, Intended, Intention, ahead_after_us, intention};
pub use key::{Claim, ClaimToken, Key};
pub use owned::{OwnedChange, OwnedIntent};
pub use refusal::{JOURNALED, RecentRefusals, Refusal, Refusals};
pub use state::IntentState;

use crate::operations::OperationKind;

/// The operation that binds, and that the faucet's budget counts.
const FAUCET_DRIP: &str = OperationKind::FaucetDrip.name();
