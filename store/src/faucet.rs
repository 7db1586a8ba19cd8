//! The faucet's bindings, as [`portcullis_filters::ledger`] decides them.

use super::db::Db;
use super::row::{FromRow, Row};
use super::tx::Tx;
use super::{StoreError, sql};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Binding, Bound, Pair, Rebinding};

/// Reads the faucet's bindings. An intent binds ([`NewIntent::identity`](super::NewIntent)), and
/// releases its binding if it is rejected or lost.
#[derive(Debug, Clone, Copy)]
pub struct FaucetBindings<'a> {
    pub(super) db: &'a Db,
}

impl FaucetBindings<'_> {
    /// Whether the two are or could be bound to each other; writes nothing.
    pub async fn check(
        &self,
        epoch: &str,
        identity: Felt,
        recipient: Felt,
    ) -> Result<Binding, StoreError> {
        let args = [epoch.into(), identity.into(), recipient.into()];
        let bound: Vec<Pair> = self.db.all(sql::PAIRS, &args).await?;
        Ok(Pair {
            identity,
            recipient,
        }
        .binding(bound))
    }
}

impl FromRow for Pair {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            identity: row.felt("identity")?,
            recipient: row.felt("recipient")?,
        })
    }
}

impl FromRow for Bound {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            pair: Pair::read(row)?,
            is_in_force: row.flag("is_in_force")?,
            is_held: row.flag("is_held")?,
        })
    }
}

/// The bindings of these identities and recipients, and the pairs of drips in doubt that may bind
/// them again, as seen from the slot of `signer` and `nonce`.
pub(super) async fn bound(
    tx: &mut Tx,
    epoch: &str,
    of: &[(Option<Felt>, Felt)],
    signer: Felt,
    nonce: i64,
) -> Result<Vec<Bound>, StoreError> {
    let mut all: Vec<Bound> = Vec::new();
    for (identity, recipient) in of {
        let args = [
            epoch.into(),
            (*identity).into(),
            (*recipient).into(),
            signer.into(),
            nonce.into(),
        ];
        for row in tx.rows(sql::BOUND, &args).await? {
            let bound = Bound::read(&row)?;
            if !all.contains(&bound) {
                all.push(bound);
            }
        }
    }
    Ok(all)
}

/// Writes the decided changes.
pub(super) async fn rebind(
    tx: &mut Tx,
    epoch: &str,
    changes: &[Rebinding],
    now_us: i64,
) -> Result<(), StoreError> {
    for change in changes {
        match change {
            Rebinding::Release(pair) => {
                let args = [epoch.into(), pair.identity.into(), pair.recipient.into()];
                tx.run(sql::UNBIND, &args).await?;
            }
            Rebinding::Bind(pair) => {
                let args = [
                    epoch.into(),
                    pair.identity.into(),
                    pair.recipient.into(),
                    now_us.into(),
                ];
                tx.run(sql::BIND, &args)
                    .await
                    .map_err(StoreError::of_decided)?;
            }
        }
    }
    Ok(())
}
