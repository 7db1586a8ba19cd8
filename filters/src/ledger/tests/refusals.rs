//! The rules of refusals that are journaled, and of those that are only counted.

use super::NOW;
use crate::ledger::{JOURNALED, MINUTE_US, RecentRefusals, Refusal, Refusals};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use proptest::prelude::*;

fn refusal(operation: &str, reason: &str) -> Refusal {
    Refusal {
        operation: operation.into(),
        reason: reason.into(),
        request_id: "r".into(),
    }
}

/// A store of rows, by what identifies them.
#[derive(Default)]
struct Rows(BTreeMap<(alloc::string::String, alloc::string::String, i64), Refusals>);

impl Rows {
    /// Records refusals as a transaction does, and returns how many are journaled.
    fn record(&mut self, refusals: &[(Refusal, i64)]) -> usize {
        let [Some(first), Some(last)] = [refusals.first(), refusals.last()] else {
            return 0;
        };
        let [after, _] = RecentRefusals::span(first.1);
        let [_, before] = RecentRefusals::span(last.1);
        let recent = self.0.values();
        let recent = recent.filter(|row| after < row.first_us && row.first_us < before);
        let mut recent = RecentRefusals::of(recent.cloned().collect());
        let journaled = refusals
            .iter()
            .filter(|(refusal, at_us)| recent.count(refusal, *at_us))
            .count();
        for row in recent.changed() {
            let key = (row.operation.clone(), row.reason.clone(), row.first_us);
            self.0.insert(key, row.clone());
        }
        journaled
    }
}

#[test]
fn what_is_unequal_or_later_has_its_own_row() {
    for (operation, reason, after_us, expected, why) in [
        ("rpc", "batch", 0, 1, "the same time"),
        ("rpc", "batch", MINUTE_US - 1, 1, "the last moment"),
        ("rpc", "batch", MINUTE_US, 2, "a minute later"),
        (
            "rpc",
            "batch",
            1 - MINUTE_US,
            1,
            "the first one was dated ahead",
        ),
        ("rpc", "batch", -MINUTE_US, 2, "the clock was set back"),
        ("register", "batch", 0, 2, "another operation"),
        ("rpc", "parse_error", 0, 2, "another reason"),
    ] {
        let mut rows = Rows::default();
        rows.record(&[(refusal("rpc", "batch"), NOW)]);
        rows.record(&[(refusal(operation, reason), NOW + after_us)]);
        assert_eq!(rows.0.len(), expected, "{why}");
    }
}

#[test]
fn the_first_ones_of_a_minute_are_journaled() {
    let mut rows = Rows::default();
    for minute in 0..3 {
        let at_us = NOW + minute * MINUTE_US;
        let journaled = (0..1_000).map(|_| rows.record(&[(refusal("rpc", "batch"), at_us)]));
        assert_eq!(
            journaled.sum::<usize>() as i64,
            JOURNALED,
            "minute {minute}"
        );
    }
    let in_one_group: Vec<_> = (0..100)
        .map(|at| (refusal("rpc", "batch"), NOW + at))
        .collect();
    assert_eq!(Rows::default().record(&in_one_group) as i64, JOURNALED);
}

proptest! {
    #[test]
    fn each_refusal_counts_once(
        steps in prop::collection::vec(
            prop::collection::vec((0..3_u8, 0..3_u8, -2_000_000..20_000_000_i64), 0..8), 1..60),
    ) {
        let mut rows = Rows::default();
        let mut expected: BTreeMap<_, i64> = BTreeMap::new();
        let mut now_us = NOW;
        for step in steps {
            let mut group = Vec::new();
            for (operation, reason, passed) in step {
                // clocks of several relays differ a little
                now_us += passed;
                let refusal = refusal(&format!("o{operation}"), &format!("r{reason}"));
                let kind = (refusal.operation.clone(), refusal.reason.clone());
                *expected.entry(kind).or_default() += 1;
                group.push((refusal, now_us));
            }
            group.sort_by_key(|(_, at_us)| *at_us);
            rows.record(&group);
        }
        let mut counted: BTreeMap<_, i64> = BTreeMap::new();
        for row in rows.0.into_values() {
            prop_assert!(row.count > 0 && row.first_us <= row.last_us);
            prop_assert!(row.last_us - row.first_us < MINUTE_US, "of a minute");
            *counted.entry((row.operation, row.reason)).or_default() += row.count;
        }
        prop_assert_eq!(counted, expected);
    }
}
