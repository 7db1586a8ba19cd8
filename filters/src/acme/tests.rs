//! Decisions of a round for which the simulation has no rule.

use super::renewal::Renewal;
use super::schedule::{LastIssue, Window};
use super::{Action, Certificate, Event, Lock, Progress, Receipt, Seen};
use crate::certificate::Validity;
use crate::chance::Chance;
use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::vec;

const DAY: u64 = 24 * 3_600;
const NOW: u64 = 1_700_000_000;

/// A good certificate that is due, with an account at its authority.
fn seen() -> Seen {
    Seen {
        ours: Some(Certificate {
            names: vec!["a.test".to_owned()],
            validity: Validity {
                not_before: NOW - 70 * DAY,
                not_after: NOW + 20 * DAY,
            },
            chain_bytes: 4_000,
            digest: "held".to_owned(),
            chance: Chance(0),
            id: Some("id".to_owned()),
        }),
        has_account: true,
        ..Seen::default()
    }
}

/// The first action of a kind other than those that read, each of which finds this.
fn decided(renewal: &mut Renewal, seen: &Seen) -> Action {
    let mut event = Event::Begin;
    loop {
        let action = renewal.step(event, NOW, Chance(0));
        event = match action {
            Action::Look => Event::Seen(Box::new(seen.clone())),
            Action::AskWindow => {
                let past = Window {
                    start: NOW - 2,
                    end: NOW - 1,
                };
                Event::Window(Some((past, DAY)))
            }
            Action::Lock => Event::Lock(Lock::Held),
            Action::OpenAccount => Event::Done,
            other => return other,
        };
    }
}

#[test]
fn an_order_names_what_it_replaces_unless_the_last_attempt_failed() {
    let of = |failed| Seen {
        progress: Progress {
            renews: "held".to_owned(),
            failed,
            ..Progress::default()
        },
        ..seen()
    };
    let renewal = || Renewal::new(vec!["a.test".to_owned()]);
    let first = decided(&mut renewal(), &of(0));
    assert!(matches!(first, Action::PlaceReplacing), "{first:?}");
    // an authority refuses what is replaced already: RFC 9773, section 5
    let next = decided(&mut renewal(), &of(1));
    assert!(matches!(next, Action::Place), "{next:?}");
}

#[test]
fn a_reload_hurries_no_order_after_an_early_certificate() {
    let last = LastIssue {
        at: NOW - 60,
        lifetime: 90 * DAY,
        early: 1,
    };
    let early = Seen {
        receipt: Some(Receipt {
            order: "https://ca.test/o/1".to_owned(),
            last,
        }),
        ..seen()
    };
    let mut renewal = Renewal::new(vec!["a.test".to_owned()]);
    renewal.hurry();
    let Action::Rest(rest) = decided(&mut renewal, &early) else {
        panic!("it orders");
    };
    assert_eq!(rest.until, last.at + 2 * DAY);
    let unserved = Seen {
        ours: None,
        ..early
    };
    renewal.hurry();
    let action = decided(&mut renewal, &unserved);
    assert!(matches!(action, Action::Place), "{action:?}");
}
