//! The used part of each budget, for [`portcullis_filters::ledger`] to decide by.

use super::intent::Intents;
use super::row::{Arg, Row};
use super::{StoreError, sql};
use portcullis_filters::ledger::{Budget, Budgets, DAY_US, minutes};
use portcullis_filters::window::Window;

impl Intents<'_> {
    /// The part of each budget that was used within 24 hours: 1 is all of it, 0 if it has no limit.
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
            (
                Budget::Faucet,
                part(drips, "drips", budgets.drips.map(i64::from))?,
            ),
            (Budget::Fees, part(fees, "fees_gfri", budgets.fees_gfri())?),
        ])
    }
}

/// The arguments that select the drips of a day.
fn drips_of(epoch: &str, day: Window) -> [Arg<'_>; 3] {
    [epoch.into(), day.after_us().into(), day.until_us().into()]
}

/// The arguments that select the minutes that overlap `day`.
pub(super) fn fees_of(epoch: &str, day: Window) -> [Arg<'_>; 3] {
    let [first, last] = minutes(day);
    [epoch.into(), first.into(), last.into()]
}
