//! Drips that are paid although their recipient was paid in the meantime.
//!
//! A drip that reverted, or was lost, ends its cooldown. If the chain rolls its block back and
//! includes it again, it may succeed after all. Then it counts for the cooldown again, and a
//! recipient who was paid meanwhile has been paid twice.

use super::FAUCET_DRIP;
use super::intent::Intent;
use super::state::IntentState;
use crate::felt::Felt;
use crate::window::Window;
use core::time::Duration;

/// A drip that may be paid in addition to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returning<'a> {
    drip: &'a Intent,
    /// Its recipient.
    pub recipient: Felt,
}

impl<'a> Returning<'a> {
    /// An intent as it was before its transaction succeeded; `None` if it held its cooldown all the
    /// time, or is no drip.
    #[must_use]
    pub fn of(before: &'a Intent) -> Option<Self> {
        use IntentState::{Displaced, Lost, Reverted};
        let is_back = matches!(before.state, Reverted | Displaced | Lost);
        if !is_back || before.operation != FAUCET_DRIP {
            return None;
        }
        let recipient = before.subject?;
        Some(Self {
            drip: before,
            recipient,
        })
    }

    /// The window of another drip within a cooldown of this one, before it or after it.
    #[must_use]
    pub fn window(&self, cooldown: Duration) -> Window {
        let cooldown_us = i64::try_from(cooldown.as_micros()).unwrap_or(i64::MAX);
        Window::new(self.drip.created_us, cooldown_us)
    }

    /// The drip that was paid in addition: `newest`, the newest one to the recipient within
    /// [`window`](Self::window) that paid or may pay. Of one slot only one is ever paid.
    #[must_use]
    pub fn paid_too<'n>(&self, newest: Option<&'n Intent>) -> Option<&'n Intent> {
        newest.filter(|newest| newest.slot() != self.drip.slot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::IntentId;
    use alloc::string::ToString as _;

    fn drip(id: i64, nonce: u64, state: IntentState) -> Intent {
        Intent {
            id: IntentId(id),
            operation: FAUCET_DRIP.to_string(),
            subject: Some(Felt::from(1_u64)),
            nonce,
            state,
            created_us: 100,
            ..Intent::empty()
        }
    }

    #[test]
    fn only_a_drip_that_held_no_cooldown_may_double() {
        use IntentState::{Displaced, Lost, Reverted};
        for state in IntentState::ALL.iter().copied() {
            let expected = matches!(state, Reverted | Displaced | Lost);
            let drip = drip(1, 7, state);
            assert_eq!(Returning::of(&drip).is_some(), expected, "{state:?}");
            let other = Intent {
                operation: "register".to_string(),
                ..drip
            };
            assert_eq!(Returning::of(&other), None);
        }
    }

    #[test]
    fn another_slot_of_the_same_recipient_was_paid_too() {
        let reverted = drip(1, 7, IntentState::Reverted);
        let returning = Returning::of(&reverted).expect("it is back");
        let newer = drip(2, 8, IntentState::Succeeded);
        assert_eq!(returning.paid_too(Some(&newer)), Some(&newer));
        for same in [
            drip(1, 7, IntentState::Succeeded),
            drip(3, 7, IntentState::Displaced),
        ] {
            assert_eq!(returning.paid_too(Some(&same)), None);
        }
        assert_eq!(returning.paid_too(None), None);
        let window = returning.window(Duration::from_micros(50));
        let counted = [50, 51, 100, 150, 151].map(|at| window.counts(at));
        assert_eq!(counted, [false, true, true, true, false]);
    }
}
