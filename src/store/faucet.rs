//! The faucet's bindings: an identity has one recipient and a recipient one identity, for the life
//! of a chain, from the first drip on.

use super::db::felt_text;
use super::{Store, StoreError, sql};
use portcullis_filters::felt::Felt;

/// What came of binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The two belong together, now or since before.
    Bound,
    /// The identity has another recipient.
    IdentityElsewhere,
    /// The recipient has another identity.
    RecipientElsewhere,
}

impl Store {
    /// Binds an identity and a recipient to each other, unless one of them is bound elsewhere.
    ///
    /// # Errors
    /// The database is unavailable: they may be bound nevertheless.
    pub async fn bind_faucet(
        &self,
        epoch: &str,
        identity: Felt,
        recipient: Felt,
        now_us: i64,
    ) -> Result<Binding, StoreError> {
        let (identity, to) = (felt_text(identity), felt_text(recipient));
        let args = [epoch.into(), (&identity).into(), (&to).into(), now_us.into()];
        if self.db.run(sql::BIND, &args).await? == 1 {
            return Ok(Binding::Bound);
        }
        Ok(match self.db.row(sql::BOUND_TO, &[epoch.into(), (&identity).into()]).await? {
            Some(row) if row.felt("recipient")? == recipient => Binding::Bound,
            Some(_) => Binding::IdentityElsewhere,
            None => Binding::RecipientElsewhere,
        })
    }

    /// Whether the two are or could be bound to each other; binds nothing.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn faucet_binding(
        &self,
        epoch: &str,
        identity: Felt,
        recipient: Felt,
    ) -> Result<Binding, StoreError> {
        let (identity, to) = (felt_text(identity), felt_text(recipient));
        if let Some(row) = self.db.row(sql::BOUND_TO, &[epoch.into(), (&identity).into()]).await? {
            let same = row.felt("recipient")? == recipient;
            return Ok(if same { Binding::Bound } else { Binding::IdentityElsewhere });
        }
        let taken = self.db.row(sql::BOUND_FROM, &[epoch.into(), (&to).into()]).await?;
        Ok(taken.map_or(Binding::Bound, |_| Binding::RecipientElsewhere))
    }

    /// Takes a recipient's binding back when nothing came of it: no intent for the recipient is
    /// under way or done.
    ///
    /// # Errors
    /// The database is unavailable: it may be taken back nevertheless.
    pub async fn unbind_faucet(
        &self,
        operation: &str,
        epoch: &str,
        recipient: Felt,
    ) -> Result<bool, StoreError> {
        let to = felt_text(recipient);
        let args = [epoch.into(), operation.into(), (&to).into()];
        Ok(self.db.run(sql::UNBIND, &args).await? == 1)
    }
}
