//! The faucet's bindings: an identity has one recipient and a recipient one identity, from the
//! first drip until the chain starts over.

use super::db::Db;
use super::tx::Tx;
use super::{StoreError, sql};
use portcullis_filters::felt::Felt;

/// Whether an identity and a recipient are bound to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// They are, or nothing prevents it.
    Bound,
    /// The identity is bound to another recipient.
    IdentityElsewhere,
    /// The recipient is bound to another identity.
    RecipientElsewhere,
}

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
        if let Some(row) = self.db.row(sql::BOUND_TO, &[epoch.into(), identity.into()]).await? {
            let same = row.felt("recipient")? == recipient;
            return Ok(if same { Binding::Bound } else { Binding::IdentityElsewhere });
        }
        let taken = self.db.row(sql::BOUND_FROM, &[epoch.into(), recipient.into()]).await?;
        Ok(taken.map_or(Binding::Bound, |_| Binding::RecipientElsewhere))
    }
}

/// Binds an identity and a recipient to each other, unless one of them is bound elsewhere.
pub(super) async fn bind(
    tx: &mut Tx,
    epoch: &str,
    identity: Felt,
    recipient: Felt,
    now_us: i64,
) -> Result<Binding, StoreError> {
    let args = [epoch.into(), identity.into(), recipient.into(), now_us.into()];
    if tx.run(sql::BIND, &args).await? == 1 {
        return Ok(Binding::Bound);
    }
    Ok(match tx.row(sql::BOUND_TO, &[epoch.into(), identity.into()]).await? {
        Some(row) if row.felt("recipient")? == recipient => Binding::Bound,
        Some(_) => Binding::IdentityElsewhere,
        None => Binding::RecipientElsewhere,
    })
}
