//! Budgets: the most that all relays of a store may spend within any 24 hours.
//!
//! Counted from the intents, so that no restart and no crash forgets what was spent. An intent is
//! checked while its transaction holds the lock on the journal's end: it sees every earlier one,
//! of other processes too. A fee counts as the highest that the transaction may cost, and by its
//! receipt as what it cost. What was rejected or lost counts nothing, and a drip that reverted
//! its fee only. Fees are summed by minute, and count until their minute is a day old. Of instants
//! ahead of the clock, [`Window`] decides.

use super::db::{Arg, Row};
use super::intent::{Intents, NewIntent};
use super::tx::Tx;
use super::{StoreError, sql};
use portcullis_filters::named;
use portcullis_filters::window::Window;

const MINUTE_US: i64 = 60_000_000;
const DAY_US: i64 = 24 * 60 * MINUTE_US;
/// Fees are stored in gfri, as 64 bits hold no sum of them in fri.
const GFRI: u128 = 1_000_000_000;
/// 10^7 STRK in gfri, the highest fee that is stored: more than a budget may be, and 900 of them
/// fit into 64 bits.
const MAX_FEE_GFRI: i64 = 10_000_000_000_000_000;

named! {
    /// What is limited.
    pub enum Budget {
        /// Drips of the faucet.
        Faucet = "faucet",
        /// Fees of the transactions that the relay signs.
        Fees = "fees",
    }
}

/// The most within 24 hours; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Drips.
    pub drips: Option<u32>,
    /// Fees in fri, of which a rest below 10^9 does not count.
    pub fees: Option<u128>,
}

/// An intent is over a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// The budget; if it is over both, the one that has room later.
    pub budget: Budget,
    /// When there is room for it, in microseconds since 1970, if nothing else is spent.
    pub until_us: i64,
}

impl Budgets {
    fn fees_gfri(&self) -> Option<i64> {
        self.fees.map(|fri| i64::try_from(fri / GFRI).unwrap_or(i64::MAX))
    }
}

impl Intents<'_> {
    /// The part of each budget that was used within 24 hours, 1 for all of it; 0 without a limit.
    pub async fn budgets_used(
        &self,
        budgets: &Budgets,
        epoch: &str,
        now_us: i64,
    ) -> Result<[(Budget, f64); 2], StoreError> {
        let day = Window::new(now_us, DAY_US);
        let drips = self.db.row(sql::DRIPS, &drips_of(epoch, day)).await?;
        let fees = self.db.row(sql::FEES, &fees_of(epoch, day)).await?;
        let part = |spent: Option<Row>, column, limit: Option<i64>| match (spent, limit) {
            (Some(row), Some(limit)) => {
                Ok::<_, StoreError>(row.get::<i64>(column)? as f64 / limit.max(1) as f64)
            }
            _ => Ok(0.0),
        };
        Ok([
            (Budget::Faucet, part(drips, "drips", budgets.drips.map(i64::from))?),
            (Budget::Fees, part(fees, "fees_gfri", budgets.fees_gfri())?),
        ])
    }
}

/// The budget that an intent is over. Its row must be inserted, and the journal's end locked.
pub(super) async fn over(
    tx: &mut Tx,
    new: &NewIntent<'_>,
    now_us: i64,
) -> Result<Option<OverBudget>, StoreError> {
    let day = Window::new(now_us, DAY_US);
    let drips = match new.budgets.drips {
        Some(limit) => over_drips(tx, new.epoch, limit.into(), day).await?,
        None => None,
    };
    let fees = match new.budgets.fees_gfri() {
        Some(limit) => over_fees(tx, new.epoch, limit, day).await?,
        None => None,
    };
    Ok(drips.into_iter().chain(fees).max_by_key(|over| over.until_us))
}

async fn over_drips(
    tx: &mut Tx,
    epoch: &str,
    limit: i64,
    day: Window,
) -> Result<Option<OverBudget>, StoreError> {
    let [epoch, after, until] = drips_of(epoch, day);
    let Some(row) = tx.row(sql::DRIP_OVER, &[epoch, after, until, limit.into()]).await? else {
        return Ok(None);
    };
    // once this drip is a day old, it and all before it do not count
    let until_us = day.end_us(row.get("created_us")?);
    Ok(Some(OverBudget { budget: Budget::Faucet, until_us }))
}

async fn over_fees(
    tx: &mut Tx,
    epoch: &str,
    limit: i64,
    day: Window,
) -> Result<Option<OverBudget>, StoreError> {
    let sum = tx.row(sql::FEES, &fees_of(epoch, day)).await?;
    // mostly there is room, which is quicker to find out than when there will be
    if sum.map_or(Ok(0), |row| row.get::<i64>("fees_gfri"))? <= limit {
        return Ok(None);
    }
    let [epoch, first, last] = fees_of(epoch, day);
    let row = tx.row(sql::FEE_OVER, &[epoch, first, last, limit.into()]).await?;
    let minute: i64 = row.ok_or(StoreError::Corrupt("fee_sum"))?.get("minute")?;
    let until_us = day.end_us(minute.saturating_add(1).saturating_mul(MINUTE_US));
    Ok(Some(OverBudget { budget: Budget::Fees, until_us }))
}

/// A fee as it is stored.
pub(super) fn gfri(fri: u128) -> i64 {
    i64::try_from(fri.div_ceil(GFRI)).map_or(MAX_FEE_GFRI, |fee| fee.min(MAX_FEE_GFRI))
}

/// The arguments that select the drips of a day.
fn drips_of(epoch: &str, day: Window) -> [Arg<'_>; 3] {
    [epoch.into(), day.after_us().into(), day.until_us().into()]
}

/// The arguments that select the minutes that are not a day old as a whole, nor a day ahead.
fn fees_of(epoch: &str, day: Window) -> [Arg<'_>; 3] {
    let minute = |us: i64| us.div_euclid(MINUTE_US);
    [epoch.into(), minute(day.after_us()).into(), minute(day.until_us()).into()]
}
