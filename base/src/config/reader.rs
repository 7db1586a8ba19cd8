//! The file and the environment as one value per key, with its place.
//!
//! In: the TOML text and the variables `PORTCULLIS__…`. Out: each key's value, converted. A mistake
//! is recorded and replaced by the key's default, so that one run finds every mistake;
//! [`Reader::finish`] then returns all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::iter;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::applied::{Text, Values};
use super::effective::Setting;
use super::error::{ConfigError, Errors, Origin, quoted, shown};
use super::key::{self, DefaultValue, ENV_PREFIX, Effect, Key, NAME_PREFIX};
use super::keys::Keys;
use super::values::{Converted, Value, expected, safely_written, written};

/// An environment variable that overrides a key.
pub(super) struct Variable {
    name: String,
    /// `None` when it is not UTF-8.
    value: Option<String>,
}

/// Selects the variables with our prefix, and those of OpenTelemetry. The latter sort first, so
/// that ours override them.
pub(super) fn variables(
    env: impl IntoIterator<Item = (OsString, OsString)>,
    keys: Keys,
) -> Vec<Variable> {
    let mut variables: Vec<_> = env
        .into_iter()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, value)| {
            // OpenTelemetry's specification treats an empty variable as unset
            name.to_ascii_uppercase().starts_with(NAME_PREFIX)
                || (keys.of_standard(name).is_some() && !value.is_empty())
        })
        .map(|(name, value)| Variable {
            name,
            value: value.into_string().ok(),
        })
        .collect();
    variables.sort_by(|a, b| a.name.cmp(&b.name));
    variables
}

/// A value before its conversion.
struct RawValue<'t> {
    value: Value<'t>,
    origin: Origin,
}

/// The values, and the mistakes found so far.
pub(super) struct Reader<'t> {
    keys: Keys,
    text: &'t str,
    /// The byte at which each line starts.
    lines: Vec<usize>,
    sections: BTreeSet<&'static str>,
    /// The sections that are not in the file, each with a variable that sets one of its keys.
    only_variables: BTreeMap<&'static str, String>,
    values: BTreeMap<&'static str, RawValue<'t>>,
    /// The keys that were read: those of sections that are on.
    used: BTreeSet<&'static str>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
}

/// Reads only keys that a reload applies: the structs that it fills are all that a reload hands
/// over.
pub(super) struct LiveReader<'r, 't>(&'r mut Reader<'t>);

impl<'t> LiveReader<'_, 't> {
    /// As [`Reader::take`].
    pub(super) fn take<T>(
        &mut self,
        path: &str,
        convert: impl Fn(&Value<'_>) -> Converted<T>,
    ) -> T {
        debug_assert_eq!(
            self.0.keys.find(path).map(|key| key.effect),
            Some(Effect::Live),
            "{path} is handed over by a reload, so its row is live"
        );
        self.0.take_any(path, convert)
    }

    /// As [`Reader::has`].
    pub(super) fn has(&self, section: &str) -> bool {
        self.0.has(section)
    }

    /// As [`Reader::is_set`].
    pub(super) fn is_set(&self, path: &str) -> bool {
        self.0.is_set(path)
    }

    /// As [`Reader::conflict`].
    pub(super) fn conflict(&mut self, path: &'static str, other: &'static str, message: String) {
        self.0.conflict(path, other, message);
    }

    /// As [`Reader::key`].
    pub(super) fn key(&self, path: &str) -> &'static str {
        self.0.key(path)
    }
}

impl<'t> Reader<'t> {
    /// The reader of the keys that a reload applies.
    pub(super) fn live(&mut self) -> LiveReader<'_, 't> {
        LiveReader(self)
    }

    /// Reads defaults, then the file, then the environment. Fails only if the text is not TOML.
    pub(super) fn new(
        text: &'t str,
        variables: &'t [Variable],
        keys: Keys,
    ) -> Result<Self, Errors> {
        let mut reader = Self {
            keys,
            text,
            lines: iter::once(0)
                .chain(text.match_indices('\n').map(|(at, _)| at + 1))
                .collect(),
            sections: BTreeSet::new(),
            only_variables: BTreeMap::new(),
            values: defaults(keys),
            used: BTreeSet::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        let table = reader.parse()?;
        reader.read_table("", table);
        for variable in variables {
            let standard = keys.of_standard(&variable.name);
            match standard.is_some() || variable.name.starts_with(ENV_PREFIX) {
                true => reader.read_variable(variable, standard),
                false => reader.read_similar_variable(&variable.name),
            }
        }
        Ok(reader)
    }

    /// Parses the file, or returns the first syntax error of each line, as one typo often causes
    /// several. A duplicate name is recorded and does not stop the reading.
    fn parse(&mut self) -> Result<DeTable<'t>, Errors> {
        let (table, mistakes) = DeTable::parse_recoverable(self.text);
        let mut lines = BTreeSet::new();
        let mut errors = Vec::new();
        for mistake in mistakes {
            let span = mistake.span().unwrap_or_default();
            let origin = self.position(span.start);
            if mistake.message() == "duplicate key" {
                let name = quoted(self.text.get(span).unwrap_or_default());
                self.report("", origin, format!("{name} is set twice; remove one"));
                continue;
            }
            let Origin::File { line, .. } = origin else {
                continue;
            };
            if lines.insert(line) {
                let message = format!("not valid TOML: {}", mistake.message());
                errors.push(ConfigError {
                    key: String::new(),
                    origin,
                    message,
                });
            }
        }
        if !errors.is_empty() {
            errors.append(&mut self.errors);
        }
        Errors::unless_none(errors, table.into_inner())
    }

    fn read_table(&mut self, prefix: &str, table: DeTable<'t>) {
        for (name, value) in table {
            let origin = self.position(name.span().start);
            let name = name.into_inner();
            let path = if prefix.is_empty() {
                name.to_string()
            } else {
                format!("{prefix}.{name}")
            };
            // a dot in a quoted name does not separate sections
            let known = Some(&*path).filter(|_| !name.contains('.'));
            if let Some(section) = self.keys.sections().find(|section| Some(*section) == known) {
                self.sections.insert(section);
                let origin = self.position(value.span().start);
                if let DeValue::Table(_) = value.get_ref() {
                    let DeValue::Table(table) = value.into_inner() else {
                        continue;
                    };
                    self.read_table(section, table);
                } else {
                    let message = expected(&format!("a table written as [{path}]"), &value);
                    self.report(&path, origin, message);
                }
            } else if known.is_some_and(|path| self.keys.is_around_section(path))
                && matches!(value.get_ref(), DeValue::Table(_))
            {
                let DeValue::Table(table) = value.into_inner() else {
                    continue;
                };
                self.read_table(&path, table);
            } else if let Some(key) = known.and_then(|path| self.keys.find(path)) {
                let origin = self.position(value.span().start);
                self.values.insert(key.path, RawValue { value, origin });
            } else {
                let message = match value.get_ref() {
                    DeValue::Table(_) => self.keys.unknown_section(&path),
                    _ => self.keys.unknown_key(&path, str::to_owned),
                };
                self.report(&shown(&path), origin, message);
            }
        }
    }

    fn read_variable(&mut self, variable: &'t Variable, standard: Option<&'static Key>) {
        let origin = Origin::Variable(shown(&variable.name));
        let own = || self.keys.all().find(|key| key.variable() == variable.name);
        let Some(key) = standard.or_else(own) else {
            let name = variable
                .name
                .strip_prefix(ENV_PREFIX)
                .unwrap_or(&variable.name);
            let path = name.replace("__", ".").to_lowercase();
            let message = match self.keys.with_same_letters(&variable.name) {
                Some(key) => format!("unknown key; did you mean {}?", key.variable()),
                None => self.keys.unknown_key(&path, key::variable),
            };
            return self.report(&shown(&path), origin, message);
        };
        // of the variables of OpenTelemetry, only the endpoint switches traces on
        let switches_on = standard.is_none_or(|key| key.path == "trace.endpoint");
        let is_around = |section: &&str| {
            let rest = key.path.strip_prefix(section).filter(|_| switches_on);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        for section in self.keys.sections().filter(is_around) {
            if self.sections.insert(section) {
                self.only_variables.insert(section, variable.name.clone());
            }
        }
        let Some(text) = &variable.value else {
            return self.report(key.path, origin, "the value is not UTF-8".to_owned());
        };
        self.values.insert(
            key.path,
            RawValue {
                value: variable_value(key, text),
                origin,
            },
        );
    }

    /// Checks a variable that does not begin with `PORTCULLIS__`. A name that spells a key with
    /// other underscores is an error, and a similar one a warning. Others are not ours: Kubernetes
    /// sets `PORTCULLIS_PORT` for a service named `portcullis`.
    fn read_similar_variable(&mut self, name: &str) {
        let origin = Origin::Variable(shown(name));
        if let Some(key) = self.keys.with_same_letters(name) {
            let message = format!("this name is not read; the variable is {}", key.variable());
            return self.report(key.path, origin, message);
        }
        if let Some(key) = self.keys.with_similar_letters(name) {
            let message = format!("this name is not read; did you mean {}?", key.variable());
            self.warnings.push(ConfigError {
                key: key.path.to_owned(),
                origin,
                message,
            });
        }
    }

    /// Whether the file or the environment names this section.
    pub(super) fn has(&self, section: &str) -> bool {
        self.sections.contains(section)
    }

    /// Whether the file or the environment sets this key.
    pub(super) fn is_set(&self, path: &str) -> bool {
        self.values
            .get(path)
            .is_some_and(|raw| raw.origin != Origin::Absent)
    }

    /// The converted value of a key that needs a restart. If it has mistakes, they are recorded and
    /// the key's literal is used.
    pub(super) fn take<T>(
        &mut self,
        path: &str,
        convert: impl Fn(&Value<'_>) -> Converted<T>,
    ) -> T {
        debug_assert_ne!(
            self.keys.find(path).map(|key| key.effect),
            Some(Effect::Live),
            "{path} is handed over by no reload, so its row is not live"
        );
        self.take_any(path, convert)
    }

    fn take_any<T>(&mut self, path: &str, convert: impl Fn(&Value<'_>) -> Converted<T>) -> T {
        let key = self
            .keys
            .find(path)
            .expect("every key that is read has a row: a test reads all");
        self.used.insert(key.path);
        let errors: Vec<_> = match self.values.get(path) {
            None => {
                let message = format!("this key is required, such as {}", key.literal());
                vec![(Origin::Absent, message)]
            }
            Some(raw) => match convert(&raw.value) {
                Ok(value) => return value,
                Err(errors) => {
                    let origin = |at| match &raw.origin {
                        Origin::File { .. } => self.position(at),
                        elsewhere => elsewhere.clone(),
                    };
                    errors
                        .into_iter()
                        .map(|error| (origin(error.at), error.message))
                        .collect()
                }
            },
        };
        for (origin, message) in errors {
            self.report(key.path, origin, message);
        }
        let stand_in = convert(&literal(key.literal())).map_err(|_| ());
        stand_in.expect("every literal of a row converts: a test reads all")
    }

    /// Records that two keys conflict, unless one of them is wrong by itself. The error is placed
    /// at the first of them that is set.
    pub(super) fn conflict(&mut self, path: &'static str, other: &'static str, message: String) {
        if self
            .errors
            .iter()
            .any(|error| error.key == path || error.key == other)
        {
            return;
        }
        let origins = [path, other]
            .into_iter()
            .filter_map(|path| self.values.get(path));
        let origin = origins
            .map(|raw| &raw.origin)
            .find(|origin| **origin != Origin::Absent);
        self.report(path, origin.cloned().unwrap_or(Origin::Absent), message);
    }

    pub(super) fn report(&mut self, key: &str, origin: Origin, message: String) {
        self.errors.push(ConfigError {
            key: key.to_owned(),
            origin,
            message,
        });
    }

    /// Records a warning about a value that is accepted, but most likely not meant.
    pub(super) fn warn(&mut self, path: &'static str, message: String) {
        let origin = self
            .values
            .get(path)
            .map_or(Origin::Absent, |raw| raw.origin.clone());
        self.warnings.push(ConfigError {
            key: path.to_owned(),
            origin,
            message,
        });
    }

    /// The key of this path, which has a row.
    pub(super) fn key(&self, path: &str) -> &'static str {
        self.keys.find(path).map_or("", |key| key.path)
    }

    /// Each key's value as text; empty if it has none, or its section is off.
    pub(super) fn texts(&self) -> Values {
        let value = |key: &'static Key| {
            let raw = self.values.get(key.path);
            let used = raw.filter(|_| self.used.contains(key.path));
            (key, used.map(|raw| text(key, raw)).unwrap_or_default())
        };
        Values(self.keys.all().map(value).collect())
    }

    /// Each value that is used, with its origin.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let used = self.keys.all().filter(|key| self.used.contains(key.path));
        used.filter_map(|key: &'static Key| {
            let raw = self.values.get(key.path)?;
            let (section, name) = key.split();
            Some(Setting {
                section,
                name,
                value: text(key, raw).shown().to_owned(),
                origin: raw.origin.clone(),
            })
        })
        .collect()
    }

    /// The mistakes and the warnings.
    pub(super) fn finish(mut self) -> (Result<(), Errors>, Vec<ConfigError>) {
        self.join_missing_keys();
        (Errors::unless_none(self.errors, ()), self.warnings)
    }

    /// Joins the errors about missing keys of a section that only a variable switched on, most
    /// likely by mistake.
    fn join_missing_keys(&mut self) {
        for (section, variable) in std::mem::take(&mut self.only_variables) {
            let name = |error: &ConfigError| {
                let name = error
                    .key
                    .strip_prefix(section)?
                    .strip_prefix('.')?
                    .to_owned();
                Some(name).filter(|_| error.origin == Origin::Absent)
            };
            let missing: Vec<_> = self.errors.iter().filter_map(name).collect();
            if missing.len() > 1 {
                self.errors.retain(|error| name(error).is_none());
                let message = format!(
                    "this switches [{section}] on, which the file does not have; unset it, or set \
                     the keys that are missing: {}",
                    missing.join(", ")
                );
                self.report(section, Origin::Variable(shown(&variable)), message);
            }
        }
    }

    /// The line and column of a byte of the file.
    fn position(&self, at: usize) -> Origin {
        let line = self.lines.partition_point(|start| *start <= at);
        let start = self.lines[line - 1];
        let before = self.text.get(start..at).unwrap_or_default();
        Origin::File {
            line,
            column: before.chars().count() + 1,
        }
    }
}

/// A value as text. URLs of a node and a collector may contain a key.
fn text(key: &Key, raw: &RawValue<'_>) -> Text {
    let is_url = matches!(key.path, "node.url" | "trace.endpoint");
    let shown = is_url.then(|| safely_written(raw.value.get_ref()));
    Text {
        written: written(raw.value.get_ref()),
        shown,
    }
}

fn defaults<'t>(keys: Keys) -> BTreeMap<&'static str, RawValue<'t>> {
    let value = |key: &'static Key| match key.default {
        DefaultValue::Default(text) => Some((
            key.path,
            RawValue {
                value: literal(text),
                origin: Origin::Absent,
            },
        )),
        DefaultValue::Required(_) => None,
    };
    keys.all().filter_map(value).collect()
}

/// The value of a variable: TOML, or text. For a key of text, `0x1` and `true` are text, too.
fn variable_value<'t>(key: &Key, text: &'t str) -> Value<'t> {
    let is_toml = |value: &Value<'_>| match value.get_ref() {
        DeValue::String(_) | DeValue::Array(_) | DeValue::Table(_) => true,
        _ => !is_of_text(&literal(key.literal())),
    };
    let value = DeValue::parse(text).ok().filter(is_toml);
    value.unwrap_or_else(|| Spanned::new(0..0, DeValue::String(text.into())))
}

/// Whether this is a text or a list of texts.
fn is_of_text(value: &Value<'_>) -> bool {
    match value.get_ref() {
        DeValue::String(_) => true,
        DeValue::Array(items) => items.iter().all(is_of_text),
        _ => false,
    }
}

fn literal(text: &'static str) -> Value<'static> {
    DeValue::parse(text).expect("every literal of a row is TOML: each start reads them all")
}
