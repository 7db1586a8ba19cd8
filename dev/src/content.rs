//! The store of the development network, and sample content for every service endpoint.

use portcullis_base::config::{StoreConfig, StoreTls};
use portcullis_store::{ImportError, ImportRules, Store, StoreError};
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// The files, in the order of their import.
const FILES: [&str; 6] = [
    include_str!("../../conf/dev/content/1-accounts.ndjson"),
    include_str!("../../conf/dev/content/2-podcasts.ndjson"),
    include_str!("../../conf/dev/content/3-feed-items.ndjson"),
    include_str!("../../conf/dev/content/4-follows.ndjson"),
    include_str!("../../conf/dev/content/5-suggestions.ndjson"),
    include_str!("../../conf/dev/content/6-pages.ndjson"),
];

/// The origin in the ids of the podcasts, fixed so that they do not depend on the port.
const BASE_URL: &str = "http://127.0.0.1:8082";

/// Imports the sample content into the store of `state`, unless it is there. A new chain is in
/// force at once: the chain of an earlier start ended with its node.
pub(super) async fn fill(state: &Path, new_chain: Option<&str>) -> Result<(), ContentError> {
    let store = Store::open_shared(&store(state), None).await?;
    if let Some(epoch) = new_chain {
        store.agree(epoch, Duration::ZERO).await?;
    }
    for file in FILES {
        // an import accepts only pages of the sidecar's own origin
        let own = format!("\"loc\":\"{BASE_URL}/");
        let mut file = Cursor::new(file.replace("\"loc\":\"https://cards.example/", &own));
        // its dates may be in the future
        let rules = ImportRules {
            base_url: Some(BASE_URL),
            now_us: i64::MAX,
        };
        let done = store.content().import(&mut file, rules, |_, _| {}).await;
        done.map_err(ContentError::Import)?;
    }
    store.close().await;
    Ok(())
}

/// The store of a folder.
pub(super) fn store(state: &Path) -> StoreConfig {
    let url = format!("sqlite:{}", state.join("portcullis.db").display());
    StoreConfig {
        url,
        read_url: None,
        password_file: None,
        max_connections: 2,
        connection_lifetime: Duration::MAX,
        tls: StoreTls::Off,
        ca_file: None,
    }
}

/// Why the sample content was not imported.
#[derive(Debug, Error)]
pub(super) enum ContentError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Import(ImportError),
}
