//! Budgets: the most that all relays of a store may spend within any 24 hours.
//!
//! Counted from the intents, so that no restart and no crash forgets expenses. An open intent
//! counts with the highest fee that it may cost, a settled one with its actual fee. Rejected and
//! lost ones count nothing, and a reverted drip counts its fee only. Fees are summed by minute, and
//! count until their minute is a day old. [`Window`] decides about instants ahead of the clock.

use super::intent::{Intent, NewIntent};
use super::{FAUCET_DRIP, Facts};
use crate::named::named;
use crate::window::Window;
use alloc::collections::BTreeMap;

/// A minute, in microseconds.
pub const MINUTE_US: i64 = 60_000_000;
/// A day, in microseconds.
pub const DAY_US: i64 = 24 * 60 * MINUTE_US;
/// Fees are stored in gfri, since a sum of them in fri does not fit into 64 bits.
const GFRI: u128 = 1_000_000_000;
/// 10^7 STRK in gfri, the highest fee that is stored: larger than any budget, and 900 of them fit
/// into 64 bits.
const MAX_FEE_GFRI: i64 = 10_000_000_000_000_000;

named! {
    /// A limited quantity.
    pub enum Budget {
        /// Drips of the faucet.
        Faucet = "faucet",
        /// Fees of the transactions that the relay signs.
        Fees = "fees",
    }
}

/// Limits within 24 hours; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budgets {
    /// The number of drips.
    pub drips: Option<u32>,
    /// Fees in fri, rounded down to a multiple of 10^9.
    pub fees: Option<u128>,
}

/// An intent exceeds a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// The budget; if both are exceeded, the one that has room later.
    pub budget: Budget,
    /// When the budget has room for it, in microseconds since 1970, if nothing else is spent.
    pub until_us: i64,
}

impl Budgets {
    /// The limit of fees, in gfri.
    #[must_use]
    pub fn fees_gfri(&self) -> Option<i64> {
        self.fees
            .map(|fri| i64::try_from(fri / GFRI).unwrap_or(i64::MAX))
    }
}

/// A fee as it is stored: in gfri, rounded up, at most 10^16.
#[must_use]
pub fn gfri(fri: u128) -> i64 {
    let fee = i64::try_from(fri.div_ceil(GFRI)).map_or(MAX_FEE_GFRI, |fee| fee.min(MAX_FEE_GFRI));
    debug_assert!(fee >= 0, "a fee takes nothing from a sum");
    fee
}

/// The first and the last minute of a window, counted from 1970.
#[must_use]
pub const fn minutes(day: Window) -> [i64; 2] {
    [minute(day.after_us()), minute(day.until_us())]
}

const fn minute(us: i64) -> i64 {
    us.div_euclid(MINUTE_US)
}

/// Whether the fees of a day exceed the limit together with a new intent. Then their sums by minute
/// are needed to compute until when.
pub(super) fn is_over_fees(new: &NewIntent<'_>, facts: &Facts, now_us: i64) -> bool {
    let Some(limit) = new.budgets.fees_gfri() else {
        return false;
    };
    let freed = freed(new, facts, now_us).map(|intent| intent.fee_gfri);
    let spent = freed.fold(facts.fees_gfri, i64::saturating_sub);
    spent.saturating_add(gfri(new.max_fee)) > limit
}

/// The displaced intents of the new one's slot whose fees count in the day. They are deducted,
/// since at most one intent of a slot is ever paid for.
fn freed<'f>(
    new: &NewIntent<'_>,
    facts: &'f Facts,
    now_us: i64,
) -> impl Iterator<Item = &'f Intent> {
    let [first, last] = minutes(Window::new(now_us, DAY_US));
    let is_counted = move |intent: &&Intent| {
        let minute = minute(intent.created_us);
        first <= minute && minute <= last
    };
    facts.yielding(new).filter(is_counted)
}

/// The budget that a new intent exceeds, if it exceeds one.
pub(super) fn over(new: &NewIntent<'_>, facts: &Facts, now_us: i64) -> Option<OverBudget> {
    let drips = over_drips(new, facts, now_us);
    let fees = over_fees(new, facts, now_us);
    drips
        .into_iter()
        .chain(fees)
        .max_by_key(|over| over.until_us)
}

fn over_drips(new: &NewIntent<'_>, facts: &Facts, now_us: i64) -> Option<OverBudget> {
    let limit = new.budgets.drips.filter(|_| new.operation == FAUCET_DRIP)?;
    // once this drip is a day old, it and all before it do not count
    let last = if limit == 0 { now_us } else { facts.drip_us? };
    let until_us = Window::new(now_us, DAY_US).end_us(last);
    Some(OverBudget {
        budget: Budget::Faucet,
        until_us,
    })
}

fn over_fees(new: &NewIntent<'_>, facts: &Facts, now_us: i64) -> Option<OverBudget> {
    if !is_over_fees(new, facts, now_us) {
        return None;
    }
    let limit = new.budgets.fees_gfri()?;
    let mut sums: BTreeMap<i64, i64> = facts.minutes.iter().copied().collect();
    let mut add = |at_us, fee: i64| {
        let sum = sums.entry(minute(at_us)).or_default();
        *sum = sum.saturating_add(fee);
    };
    add(now_us, gfri(new.max_fee));
    freed(new, facts, now_us)
        .for_each(|intent| add(intent.created_us, intent.fee_gfri.saturating_neg()));
    let mut together = 0_i64;
    let newest_first = sums.into_iter().rev();
    let over = newest_first.map(|(minute, fee)| {
        together = together.saturating_add(fee);
        (minute, together)
    });
    let (minute, _) = over.into_iter().find(|(_, together)| *together > limit)?;
    let end = minute.saturating_add(1).saturating_mul(MINUTE_US);
    let until_us = Window::new(now_us, DAY_US).end_us(end);
    Some(OverBudget {
        budget: Budget::Fees,
        until_us,
    })
}
