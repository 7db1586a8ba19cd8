//! The rules of rows that count refusals.

use super::NOW;
use crate::ledger::{MINUTE_US, OpenRefusals, Refusal, Refusals};
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

/// A store of rows: those that are open, and those that are closed.
#[derive(Default)]
struct Rows {
    open: Vec<Refusals>,
    closed: Vec<Refusals>,
}

impl Rows {
    /// Records refusals as a transaction does.
    fn record(&mut self, refusals: &[(Refusal, i64)], now_us: i64) {
        let last = self.closed.last().map_or(0, |row| row.seq);
        let mut open = OpenRefusals::after(last, self.open.clone());
        for (refusal, at_us) in refusals {
            open.count(refusal, *at_us);
        }
        let folded = open.fold(now_us);
        for row in folded.counted {
            match self.open.iter_mut().find(|it| it.seq == row.seq) {
                Some(it) => *it = row,
                None => self.open.push(row),
            }
        }
        for row in folded.closed {
            let at = self.open.iter().position(|it| *it == row);
            assert_eq!(at, Some(0), "the oldest is closed, as it was written");
            self.closed.push(self.open.remove(0));
        }
    }

    fn all(&self) -> impl Iterator<Item = &Refusals> {
        self.closed.iter().chain(&self.open)
    }
}

#[test]
fn what_is_unequal_or_later_has_its_own_row() {
    for (operation, reason, after_us, expected, why) in [
        ("rpc", "batch", 0, 1, "the same time"),
        ("rpc", "batch", MINUTE_US - 1, 1, "the last moment"),
        ("rpc", "batch", MINUTE_US, 2, "a minute later"),
        ("rpc", "batch", 1 - MINUTE_US, 1, "the first one was dated ahead"),
        ("rpc", "batch", -MINUTE_US, 2, "the clock was set back"),
        ("register", "batch", 0, 2, "another operation"),
        ("rpc", "parse_error", 0, 2, "another reason"),
    ] {
        let mut rows = Rows::default();
        rows.record(&[(refusal("rpc", "batch"), NOW)], NOW);
        let at_us = NOW + after_us;
        rows.record(&[(refusal(operation, reason), at_us)], at_us);
        assert_eq!(rows.all().count(), expected, "{why}");
    }
}

#[test]
fn a_row_closes_after_its_minute() {
    let mut rows = Rows::default();
    rows.record(&[(refusal("rpc", "batch"), NOW)], NOW);
    rows.record(&[], NOW + MINUTE_US - 1);
    assert_eq!(rows.closed, [], "it may still count");
    rows.record(&[], NOW + MINUTE_US);
    assert_eq!(rows.closed.len(), 1);
    assert_eq!(rows.open, []);
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
                *expected.entry((operation, reason)).or_default() += 1;
                group.push((refusal, now_us));
            }
            rows.record(&group, now_us);
            let numbers = rows.all().map(|row| row.seq);
            prop_assert!(numbers.eq(1..=rows.all().count() as i64), "no gap");
        }
        let mut counted: BTreeMap<_, i64> = BTreeMap::new();
        for row in rows.all() {
            let first = &row.first;
            *counted.entry((first.operation.clone(), first.reason.clone())).or_default() += row.count;
            prop_assert!(row.count > 0 && row.first_us <= row.last_us);
            prop_assert!(row.last_us - row.first_us < 2 * MINUTE_US, "a minute, and a clock ahead");
        }
        let expected: BTreeMap<_, _> = expected
            .into_iter()
            .map(|((operation, reason), count)| {
                ((format!("o{operation}"), format!("r{reason}")), count)
            })
            .collect();
        prop_assert_eq!(counted, expected);
    }

    #[test]
    fn a_minute_has_one_row_per_kind(gaps in prop::collection::vec(0..1_000_000_i64, 1..600)) {
        let mut rows = Rows::default();
        let mut at_us = NOW;
        for gap in gaps {
            at_us += gap;
            rows.record(&[(refusal("rpc", "batch"), at_us)], at_us);
        }
        let minutes = (at_us - NOW) / MINUTE_US + 1;
        prop_assert!(rows.all().count() as i64 <= minutes);
        prop_assert!(rows.open.len() <= 2);
    }
}
