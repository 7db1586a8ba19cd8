//! `[store]`: where the relay and the sidecar keep things.

use super::file::Reader;
use super::relay::optional_path;
use super::values::{integer, refusal, text};
use std::path::PathBuf;
use toml::de::DeValue;

/// `[store]`: where things are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// `sqlite:FILE` or `postgres://…`, without a password.
    pub url: String,
    /// The file of PostgreSQL's password.
    pub password_file: Option<PathBuf>,
    /// Connections to PostgreSQL.
    pub max_connections: u32,
}

impl StoreConfig {
    /// Whether only one process at a time can serve with it: SQLite.
    pub fn is_for_one(&self) -> bool {
        self.url.starts_with("sqlite:")
    }
}

const WHY: &str = "one waits while another writes, and a database has few to give";

/// Reads `[store]`.
pub(super) fn store(reader: &mut Reader<'_>) -> StoreConfig {
    StoreConfig {
        url: reader.take("store.url", store_url),
        password_file: reader.take("store.password_file", text("a path", optional_path)),
        max_connections: reader.take("store.max_connections", integer(2..=100, WHY)),
    }
}

/// Where it is. What may hold a password is not shown.
fn store_url(value: &DeValue<'_>) -> Result<String, String> {
    const EXPECTED: &str = "sqlite:FILE or postgres://USER@HOST:PORT/DATABASE";
    let why = |why: &str| format!("expected {EXPECTED}: {why}");
    let text = value.as_str().ok_or_else(|| refusal(EXPECTED, value))?;
    if let Some(file) = text.strip_prefix("sqlite:") {
        let is_file = !file.is_empty() && !file.starts_with("//") && !file.contains(['?', '\0']);
        return if is_file { Ok(text.to_owned()) } else { Err(why("it names no file")) };
    }
    let rest = text.strip_prefix("postgres://").ok_or_else(|| why("the scheme is neither"))?;
    let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
    if user.contains(':') || rest.to_ascii_lowercase().contains("password=") {
        return Err(why("a password belongs in the file of store.password_file"));
    }
    Ok(text.to_owned())
}
