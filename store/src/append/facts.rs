//! Reads the journal's facts that the new intents of a group may conflict with. The journal's end
//! must be locked.

use super::rows::{Args, stored};
use crate::error::StoreError;
use crate::row::{Arg, FromRow as _, Row};
use crate::tx::Tx;
use crate::{Intent, budget, idempotency, sql};
use portcullis_base::io::clock::micros;
use portcullis_filters::ledger::{Bound, DAY_US, Facts, Key, NewIntent};
use portcullis_filters::window::Window;

/// The facts of each intent, which is decided at its time.
pub(super) async fn read(
    tx: &mut Tx,
    news: &[(NewIntent<'_>, i64)],
) -> Result<Vec<Facts>, StoreError> {
    let mut lists = Vec::with_capacity(news.len());
    for (new, now_us) in news {
        lists.push(arguments(new, *now_us)?);
    }
    let mut singles = Vec::with_capacity(news.len());
    for rows in tx.rows_each(sql::INTEND_FACTS, &lists).await? {
        let row = rows
            .into_iter()
            .next()
            .ok_or(StoreError::Corrupt("facts"))?;
        singles.push(Single::read(&row)?);
    }
    let intents = related(tx, news, &singles).await?;
    let bounds = bounds(tx, news).await?;
    let mut all = Vec::with_capacity(news.len());
    for (((single, intents), bound), (new, now_us)) in
        singles.into_iter().zip(intents).zip(bounds).zip(news)
    {
        let mut facts = single.with(intents, bound);
        if facts.need_minutes(new, *now_us) {
            facts.minutes = minutes(tx, new, *now_us).await?;
        }
        all.push(facts);
    }
    Ok(all)
}

/// The facts of one intent that have one value.
struct Single {
    epoch: Option<String>,
    key: Option<Key>,
    last: Option<i64>,
    drip_us: Option<i64>,
    fees_gfri: i64,
    newest_us: Option<i64>,
}

impl Single {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            epoch: row.get("epoch")?,
            key: idempotency::key_of_facts(row)?,
            last: row.get("last_id")?,
            drip_us: row.get("drip_us")?,
            fees_gfri: row.get::<Option<i64>>("fees_gfri")?.unwrap_or(0),
            newest_us: row.get("newest_us")?,
        })
    }

    /// The id of the intent that the key names.
    fn linked(&self) -> Option<i64> {
        Some(self.key.as_ref()?.intent?.0)
    }

    fn with(self, intents: Vec<Intent>, bound: Vec<Bound>) -> Facts {
        let mut found = intents.iter();
        let last = found.find(|intent| Some(intent.id.0) == self.last);
        Facts {
            epoch: self.epoch,
            key: self.key,
            last: last.cloned(),
            intents,
            bound,
            drip_us: self.drip_us,
            fees_gfri: self.fees_gfri,
            minutes: Vec::new(),
            newest_us: self.newest_us,
        }
    }
}

/// The arguments of [`sql::INTEND_FACTS`]. What is not needed is NULL.
fn arguments<'n>(new: &NewIntent<'n>, now_us: i64) -> Result<Args<'n>, StoreError> {
    let none = || Arg::Text(None);
    let day = Window::new(now_us, DAY_US);
    let drips = new.budgets.drips.filter(|limit| *limit > 0);
    let [fees_epoch, first, last] = budget::fees_of(new.epoch, day);
    let cooldown = Window::new(now_us, new.cooldown.map_or(0, micros));
    Ok(vec![
        new.epoch.into(),
        new.idempotency_key.into(),
        drips.map_or_else(none, |_| new.epoch.into()),
        day.after_us().into(),
        day.until_us().into(),
        drips.map_or(0, |limit| i64::from(limit) - 1).into(),
        new.signer.into(),
        stored("nonce", new.nonce)?.into(),
        new.budgets.fees.map_or_else(none, |_| fees_epoch),
        first,
        last,
        new.cooldown.map_or_else(none, |_| new.epoch.into()),
        new.operation.into(),
        new.subject.into(),
        cooldown.after_us().into(),
        cooldown.until_us().into(),
    ])
}

/// For each new intent, the intents that it may conflict with.
async fn related(
    tx: &mut Tx,
    news: &[(NewIntent<'_>, i64)],
    singles: &[Single],
) -> Result<Vec<Vec<Intent>>, StoreError> {
    let mut lists = Vec::with_capacity(news.len());
    for ((new, _), single) in news.iter().zip(singles) {
        lists.push(vec![
            new.epoch.into(),
            new.transaction_hash.into(),
            new.signer.into(),
            stored("nonce", new.nonce)?.into(),
            (&new.digest).into(),
            single.linked().into(),
            single.last.into(),
        ]);
    }
    let found = tx.rows_each(sql::INTEND_INTENTS, &lists).await?;
    found
        .iter()
        .map(|rows| super::group::intents(rows))
        .collect()
}

/// For each new intent, the bindings that concern it: none unless it binds.
async fn bounds(tx: &mut Tx, news: &[(NewIntent<'_>, i64)]) -> Result<Vec<Vec<Bound>>, StoreError> {
    let mut lists = Vec::new();
    for (new, _) in news {
        if let Some((identity, subject)) = new.identity.zip(new.subject) {
            lists.push(vec![
                new.epoch.into(),
                identity.into(),
                subject.into(),
                new.signer.into(),
                stored("nonce", new.nonce)?.into(),
            ]);
        }
    }
    let mut found = tx.rows_each(sql::BOUND, &lists).await?.into_iter();
    let mut all = Vec::with_capacity(news.len());
    for (new, _) in news {
        let mut bound = Vec::new();
        if new.identity.is_some() && new.subject.is_some() {
            for row in found.next().unwrap_or_default() {
                bound.push(Bound::read(&row)?);
            }
        }
        all.push(bound);
    }
    Ok(all)
}

/// The fees of a day by minute.
async fn minutes(
    tx: &mut Tx,
    new: &NewIntent<'_>,
    now_us: i64,
) -> Result<Vec<(i64, i64)>, StoreError> {
    let day = budget::fees_of(new.epoch, Window::new(now_us, DAY_US));
    let rows = tx.rows(sql::FEES_BY_MINUTE, &day).await?;
    rows.iter()
        .map(|row| Ok((row.get("minute")?, row.get("fee_gfri")?)))
        .collect()
}
