//! Accounts: the platform's users, found by user id, DID or handle.

use super::db::Db;
use super::row::{FromRow, Row};
use super::{StoreError, sql};
use portcullis_filters::named;

named! {
    /// Whether an account is in use.
    pub enum AccountStatus {
        /// In use.
        Active = "active",
        /// Closed by its user, perhaps temporarily.
        Deactivated = "deactivated",
        /// Closed by moderators.
        TakenDown = "taken_down",
        /// Closed by moderators; its user is barred from every action.
        Banned = "banned",
    }
}

/// A user of the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The platform's identifier, a UUID.
    pub user_id: String,
    /// The DID, unless the user has none yet.
    pub did: Option<String>,
    /// The handle, in lower case and without `@`.
    pub handle: Option<String>,
    /// Whether the account is in use.
    pub status: AccountStatus,
}

impl FromRow for Account {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let status = row.parsed("status", AccountStatus::parse)?;
        Ok(from_row!(row; get: user_id did handle; { status }))
    }
}

/// Reads accounts.
#[derive(Debug, Clone, Copy)]
pub struct Accounts<'a> {
    pub(super) db: &'a Db,
}

impl Accounts<'_> {
    /// The account of a user.
    pub async fn by_user(&self, user_id: &str) -> Result<Option<Account>, StoreError> {
        self.find(sql::ACCOUNT_OF_USER, user_id).await
    }

    /// The account with this DID.
    pub async fn by_did(&self, did: &str) -> Result<Option<Account>, StoreError> {
        self.find(sql::ACCOUNT_OF_DID, did).await
    }

    /// The account with this handle.
    pub async fn by_handle(&self, handle: &str) -> Result<Option<Account>, StoreError> {
        self.find(sql::ACCOUNT_OF_HANDLE, handle).await
    }

    async fn find(&self, sql: &'static str, value: &str) -> Result<Option<Account>, StoreError> {
        self.db.one(sql, &[value.into()]).await
    }
}
