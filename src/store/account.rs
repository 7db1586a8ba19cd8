//! Users of the platform, by each of their names.

use super::db::Row;
use super::{Store, StoreError, sql};

/// Whether an account is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountStatus {
    /// It is.
    Active,
    /// Its user closed it, perhaps for a time.
    Deactivated,
    /// Moderators closed it.
    TakenDown,
    /// Moderators closed it, and its user may do nothing.
    Banned,
}

impl AccountStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Active, Self::Deactivated, Self::TakenDown, Self::Banned];

    /// As it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deactivated => "deactivated",
            Self::TakenDown => "taken_down",
            Self::Banned => "banned",
        }
    }

    /// The status of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// A user of the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The platform's name for the user.
    pub user_id: String,
    /// The DID, once there is one.
    pub did: Option<String>,
    /// The handle, in lower case and without `@`.
    pub handle: Option<String>,
    /// Whether it is in use.
    pub status: AccountStatus,
}

impl Account {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let status: String = row.get("status")?;
        Ok(Self {
            user_id: row.get("user_id")?,
            did: row.get("did")?,
            handle: row.get("handle")?,
            status: AccountStatus::parse(&status).ok_or(StoreError::Corrupt("status"))?,
        })
    }
}

impl Store {
    /// The account of a user.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn account_of_user(&self, user_id: &str) -> Result<Option<Account>, StoreError> {
        self.account(sql::ACCOUNT_OF_USER, user_id).await
    }

    /// The account with a DID.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn account_of_did(&self, did: &str) -> Result<Option<Account>, StoreError> {
        self.account(sql::ACCOUNT_OF_DID, did).await
    }

    /// The account with a handle.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn account_of_handle(&self, handle: &str) -> Result<Option<Account>, StoreError> {
        self.account(sql::ACCOUNT_OF_HANDLE, handle).await
    }

    async fn account(
        &self,
        statement: &'static str,
        name: &str,
    ) -> Result<Option<Account>, StoreError> {
        self.db.row(statement, &[name.into()]).await?.as_ref().map(Account::read).transpose()
    }
}
