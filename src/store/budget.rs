//! Budgets: the most that all relays of a store may spend within any 24 hours.
//!
//! Counted from the intents, so that no restart and no crash forgets what was spent. An intent is
//! checked while its transaction holds the lock on the journal's end: it sees every earlier one,
//! of other processes too. A fee counts as the highest that the transaction may cost, and by its
//! receipt as what it cost. What was rejected or lost counts nothing, and a drip that reverted
//! its fee only. Fees are summed by minute, and count until their minute is a day old.

use super::db::Row;
use super::intent::{Intents, NewIntent};
use super::tx::Tx;
use super::{StoreError, sql};
use portcullis_filters::named;

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
        let (day, minute) = (day_before(now_us), minute_before(now_us));
        let drips = self.db.row(sql::DRIPS, &[epoch.into(), day.into()]).await?;
        let fees = self.db.row(sql::FEES, &[epoch.into(), minute.into()]).await?;
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
    let drips = match new.budgets.drips {
        Some(limit) => over_drips(tx, new.epoch, limit.into(), now_us).await?,
        None => None,
    };
    let fees = match new.budgets.fees_gfri() {
        Some(limit) => over_fees(tx, new.epoch, limit, now_us).await?,
        None => None,
    };
    Ok(drips.into_iter().chain(fees).max_by_key(|over| over.until_us))
}

async fn over_drips(
    tx: &mut Tx,
    epoch: &str,
    limit: i64,
    now_us: i64,
) -> Result<Option<OverBudget>, StoreError> {
    let args = [epoch.into(), day_before(now_us).into(), limit.into()];
    let Some(row) = tx.row(sql::DRIP_OVER, &args).await? else { return Ok(None) };
    // once this drip is a day old, it and all before it do not count
    let until_us = row.get::<i64>("created_us")?.saturating_add(DAY_US);
    Ok(Some(OverBudget { budget: Budget::Faucet, until_us }))
}

async fn over_fees(
    tx: &mut Tx,
    epoch: &str,
    limit: i64,
    now_us: i64,
) -> Result<Option<OverBudget>, StoreError> {
    let args = [epoch.into(), minute_before(now_us).into(), limit.into()];
    let sum = tx.row(sql::FEES, &args[..2]).await?;
    // mostly there is room, which is quicker to find out than when there will be
    if sum.map_or(Ok(0), |row| row.get::<i64>("fees_gfri"))? <= limit {
        return Ok(None);
    }
    let row = tx.row(sql::FEE_OVER, &args).await?.ok_or(StoreError::Corrupt("fee_sum"))?;
    let end_us = row.get::<i64>("minute")?.saturating_add(1).saturating_mul(MINUTE_US);
    Ok(Some(OverBudget { budget: Budget::Fees, until_us: end_us.saturating_add(DAY_US) }))
}

/// A fee as it is stored.
pub(super) fn gfri(fri: u128) -> i64 {
    i64::try_from(fri.div_ceil(GFRI)).map_or(MAX_FEE_GFRI, |fee| fee.min(MAX_FEE_GFRI))
}

fn day_before(now_us: i64) -> i64 {
    now_us.saturating_sub(DAY_US)
}

/// The oldest minute that is not a day old as a whole.
fn minute_before(now_us: i64) -> i64 {
    day_before(now_us).div_euclid(MINUTE_US)
}
