//! The faucet's bindings: an identity has one recipient and a recipient one identity, from the
//! first drip until the chain starts over.

use super::db::Db;
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

/// Reads and writes the faucet's bindings.
#[derive(Debug, Clone, Copy)]
pub struct FaucetBindings<'a> {
    pub(super) db: &'a Db,
}

impl FaucetBindings<'_> {
    /// Binds an identity and a recipient to each other, unless one of them is bound elsewhere.
    pub async fn bind(
        &self,
        epoch: &str,
        identity: Felt,
        recipient: Felt,
        now_us: i64,
    ) -> Result<Binding, StoreError> {
        let args = [epoch.into(), identity.into(), recipient.into(), now_us.into()];
        if self.db.run(sql::BIND, &args).await? == 1 {
            return Ok(Binding::Bound);
        }
        Ok(match self.db.row(sql::BOUND_TO, &[epoch.into(), identity.into()]).await? {
            Some(row) if row.felt("recipient")? == recipient => Binding::Bound,
            Some(_) => Binding::IdentityElsewhere,
            None => Binding::RecipientElsewhere,
        })
    }

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

    /// Removes a recipient's binding, unless an intent for the recipient is pending or succeeded.
    pub async fn unbind(
        &self,
        operation: &str,
        epoch: &str,
        recipient: Felt,
    ) -> Result<bool, StoreError> {
        let args = [epoch.into(), operation.into(), recipient.into()];
        Ok(self.db.run(sql::UNBIND, &args).await? == 1)
    }
}
