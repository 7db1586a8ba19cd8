//! Searches the journal: intents by their attributes, and refusals.

use super::{Entry, Intent, IntentState, Journal, PAGE, StoreError, sql};
use portcullis_filters::felt::Felt;

/// Selects intents; `None` matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// The transaction's hash.
    pub hash: Option<Felt>,
    /// The account that the operation is about.
    pub subject: Option<Felt>,
    /// The state.
    pub state: Option<IntentState>,
    /// The operation's name.
    pub operation: Option<String>,
}

impl Search {
    /// The statement whose index selects best.
    fn statement(&self) -> &'static str {
        match self {
            Self { hash: Some(_), .. } => sql::SEARCH_BY_HASH,
            Self { subject: Some(_), .. } => sql::SEARCH_BY_SUBJECT,
            Self { state: Some(_), .. } => sql::SEARCH_BY_STATE,
            Self { operation: Some(_), .. } => sql::SEARCH_BY_OPERATION,
            _ => sql::SEARCH,
        }
    }
}

impl Journal {
    /// Intents with an id below `before`, newest first; at most `limit`, and at most [`PAGE`].
    pub async fn search(
        &self,
        search: &Search,
        before: i64,
        limit: u32,
    ) -> Result<Vec<Intent>, StoreError> {
        let args = [
            before.into(),
            i64::from(limit.min(PAGE)).into(),
            search.hash.into(),
            search.subject.into(),
            search.state.map(IntentState::name).into(),
            search.operation.as_deref().into(),
        ];
        self.db.all(search.statement(), &args).await
    }

    /// Refusals with a sequence number below `before`, newest first, of one operation or all; at
    /// most `limit`, and at most [`PAGE`].
    pub async fn refusals(
        &self,
        operation: Option<&str>,
        before: i64,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let args = [before.into(), i64::from(limit.min(PAGE)).into(), operation.into()];
        self.db.all(sql::REFUSALS, &args).await
    }
}
