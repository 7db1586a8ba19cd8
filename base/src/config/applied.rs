//! The applied configuration: what the process started with, what reloads have read since, and the
//! differences, key by key.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::key::{Effect, Key};

/// The value of each key as text, defaults included, in the order of the example file. The keys of
/// a section that is off have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values(pub(super) Vec<(&'static Key, Text)>);

/// A value as text.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Text {
    /// The value as it is written; empty in a section that is off.
    pub(super) written: String,
    /// The value without path segments that may be an API key, if that differs.
    pub(super) shown: Option<String>,
}

impl Text {
    pub(super) fn shown(&self) -> &str {
        self.shown.as_deref().unwrap_or(&self.written)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

/// A key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key's path.
    pub key: &'static str,
    /// Its old value.
    pub from: &'a str,
    /// Its new value.
    pub to: &'a str,
    /// When it is effective.
    pub effect: Effect,
}

/// A file that a key names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedFile {
    /// The key's path.
    pub key: &'static str,
    /// The file's path.
    pub path: PathBuf,
    /// When another content is effective.
    pub effect: Effect,
}

impl Values {
    /// The files that keys name.
    pub fn files(&self) -> Vec<NamedFile> {
        let mut files = Vec::new();
        for (key, text) in &self.0 {
            if !key.path.ends_with("_file") && !key.path.ends_with("_files") {
                continue;
            }
            let names = match serde_json::from_str(&text.written) {
                Ok(Json::String(name)) => vec![Json::String(name)],
                Ok(Json::Array(names)) => names,
                _ => Vec::new(),
            };
            let names = names.iter().filter_map(Json::as_str);
            let named = names.filter(|name| !name.is_empty());
            files.extend(named.map(|name| NamedFile {
                key: key.path,
                path: PathBuf::from(name),
                effect: key.effect,
            }));
        }
        files
    }

    /// The changes from these values to `new`, in the order of the example file.
    pub fn changes<'a>(&'a self, new: &'a Self) -> Vec<Change<'a>> {
        let pairs = self
            .0
            .iter()
            .zip(&new.0)
            .filter(|((_, from), (_, to))| from != to);
        pairs
            .map(|((key, from), (_, to))| Change {
                key: key.path,
                from: from.shown(),
                to: to.shown(),
                effect: self.effect(key, new),
            })
            .collect()
    }

    /// 48 bits of the SHA-256 digest of all values: each such number is exact in a metric. The
    /// contents of named files are not part of it.
    pub fn hash(&self) -> u64 {
        let mut digest = Sha256::new();
        for (key, text) in &self.0 {
            if !text.written.is_empty() {
                digest.update(format!("{} = {}\n", key.path, text.written));
            }
        }
        let bytes = digest.finalize();
        let bits = bytes.iter().take(6);
        bits.fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    }

    /// The values that a process uses which started with these and has read `last` since.
    fn after_reload(&self, last: &Self) -> Self {
        let pairs = self.0.iter().zip(&last.0);
        let used = pairs.map(|((key, started), (_, read))| {
            let text = match self.effect(key, last) {
                Effect::Live => read,
                Effect::Reread | Effect::Reconnect | Effect::Restart => started,
            };
            (*key, text.clone())
        });
        Self(used.collect())
    }

    /// When the change of a key is effective. No reload starts or ends what a section of the file
    /// switches on.
    fn effect(&self, key: &Key, new: &Self) -> Effect {
        if self.has_section_of(key) && new.has_section_of(key) {
            return key.effect;
        }
        Effect::Restart
    }

    /// Whether the section of a key is on. TLS is a part of its surface's section.
    fn has_section_of(&self, key: &Key) -> bool {
        let mut of_section = self
            .0
            .iter()
            .filter(|(other, _)| section(other) == section(key));
        of_section.any(|(_, text)| !text.written.is_empty())
    }
}

fn section(key: &Key) -> &str {
    key.path.split('.').next().unwrap_or_default()
}

/// The values at the start, and those of the last reload.
#[derive(Debug)]
pub struct AppliedConfig {
    started: Values,
    last: Mutex<LastReload>,
}

/// The last reload.
#[derive(Clone, Debug)]
pub struct LastReload {
    /// The values of the last valid file; those that need a restart are not applied yet.
    pub values: Values,
    /// When it was requested; `None` before the first one.
    pub at: Option<SystemTime>,
    /// Whether the file had a mistake, so that nothing changed.
    pub failed: bool,
    /// How many reloads were requested.
    pub count: u64,
}

impl AppliedConfig {
    /// The configuration of a process that starts with these values.
    pub fn new(values: &Values) -> Self {
        let last = LastReload {
            values: values.clone(),
            at: None,
            failed: false,
            count: 0,
        };
        Self {
            started: values.clone(),
            last: Mutex::new(last),
        }
    }

    /// The values that the process started with.
    pub fn started(&self) -> &Values {
        &self.started
    }

    /// The hash of the values that the process uses, as [`Values::hash`].
    pub fn hash(&self) -> u64 {
        self.started.after_reload(&self.last.lock().values).hash()
    }

    /// The number of keys whose value in the last valid file needs a restart.
    pub fn pending_restart(&self) -> usize {
        let last = self.last.lock();
        let changes = self.started.changes(&last.values);
        let waiting = changes.iter().filter(|it| it.effect != Effect::Live);
        waiting.count()
    }

    /// The last reload.
    pub fn last_reload(&self) -> LastReload {
        self.last.lock().clone()
    }

    /// How many reloads were requested.
    pub fn reloads(&self) -> u64 {
        self.last.lock().count
    }

    /// Records a reload: its values, or `None` if the file had a mistake.
    pub fn record(&self, values: Option<&Values>) {
        let mut last = self.last.lock();
        last.at = Some(SystemTime::now());
        last.count += 1;
        last.failed = values.is_none();
        if let Some(values) = values {
            last.values = values.clone();
        }
    }
}
