//! The store of the development network, and sample content for every service endpoint.

use super::is_of;
use portcullis_base::config::{Config, Errors, StoreConfig};
use portcullis_base::secrets::{self, SecretError};
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

/// Imports the sample content into the store that is served, unless it is there. A new chain is in
/// force at once: the chain of an earlier start ended with its node.
pub(super) async fn fill(state: &Path, new_chain: Option<&str>) -> Result<(), ContentError> {
    let config = store(state)?;
    let password = secrets::read_optional("store.password_file", config.password_file.as_deref())?;
    let store = Store::open_shared(&config, password.as_ref()).await?;
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

/// The store in the folder, or the one that the environment names instead.
pub(super) fn store(state: &Path) -> Result<StoreConfig, Errors> {
    let file = state.join("portcullis.db");
    let text = format!(
        "[node]\nurl = \"http://127.0.0.1:1\"\n[sidecar]\nbase_url = \"{BASE_URL}\"\n\
         [store]\nurl = \"sqlite:{}\"\n",
        file.display()
    );
    let env = std::env::vars_os().filter(|(name, _)| is_of(name, "STORE"));
    Ok(Config::parse(&text, env)?
        .store
        .expect("a sidecar has a store"))
}

/// Why the sample content was not imported.
#[derive(Debug, Error)]
pub(super) enum ContentError {
    #[error("{0}")]
    Config(#[from] Errors),
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Import(ImportError),
}
