//! Refusals of authenticated requests: the first of equal ones within a minute are journaled, the
//! others only counted. [`RecentRefusals`] decides.

use super::row::{Arg, FromRow, Row};
use super::tx::Tx;
use super::{Journal, PAGE, StoreError, sql};
use portcullis_filters::ledger::{JOURNALED, RecentRefusals, Refusal, Refusals};

impl FromRow for Refusals {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: operation reason first_us last_us; {
            count: row.get("refusals")?,
        }))
    }
}

/// Counts refusals, each with its time, and returns those to journal. The end of the journal must
/// be locked.
pub(super) async fn count<'r>(
    tx: &mut Tx,
    refusals: &[(&'r Refusal, i64)],
) -> Result<Vec<(&'r Refusal, i64)>, StoreError> {
    let spans = refusals
        .iter()
        .map(|(_, at_us)| RecentRefusals::span(*at_us));
    let span = spans.reduce(|[after, before], [a, b]| [after.min(a), before.max(b)]);
    let Some([after, before]) = span else {
        return Ok(Vec::new());
    };
    let args = [after.into(), before.into()];
    let rows = tx.rows(sql::REFUSALS_RECENT, &args).await?;
    let rows: Result<_, _> = rows.iter().map(Refusals::read).collect();
    let mut recent = RecentRefusals::of(rows?);
    let mut journaled = Vec::new();
    for (refusal, at_us) in refusals {
        if recent.count(refusal, *at_us) {
            journaled.push((*refusal, *at_us));
        }
    }
    let changed: Vec<_> = recent.changed().iter().map(columns).collect();
    tx.run_each(sql::REFUSALS_COUNT, &changed).await?;
    Ok(journaled)
}

fn columns(row: &Refusals) -> Vec<Arg<'_>> {
    vec![
        (&row.operation).into(),
        (&row.reason).into(),
        row.first_us.into(),
        row.last_us.into(),
        row.count.into(),
    ]
}

impl Journal {
    /// Minutes with equal refusals of which not all are journaled, newest first, since a time in
    /// microseconds since 1970, of one operation or all; at most [`PAGE`].
    pub async fn counted_refusals(
        &self,
        operation: Option<&str>,
        since_us: i64,
    ) -> Result<Vec<Refusals>, StoreError> {
        let args = [
            since_us.into(),
            JOURNALED.into(),
            operation.into(),
            i64::from(PAGE).into(),
        ];
        self.db.all(sql::REFUSALS_COUNTED, &args).await
    }
}
