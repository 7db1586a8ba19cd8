//! The file and the environment as a flat set of keys, each with its value and where it stands.
//!
//! In: the TOML text and the variables `PORTCULLIS__…`. Out: one value per key, taken by path and
//! converted by the caller. A mistake is recorded and reading goes on, with the key's default as
//! a stand-in, so that every mistake is found in one go; [`Reader::finish`] then refuses them all.
//! Knows nothing of what a key means: that is `check.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::{iter, slice};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::changes::{Values, text};
use super::error::{ConfigError, Errors, Origin, quoted, shown};
use super::keys::{self, ENV_PREFIX, Preset};
use super::values::refusal;

/// An environment variable that overrides a key.
pub(super) struct Variable {
    name: String,
    /// None when it is not UTF-8.
    value: Option<String>,
}

/// The variables among `env` that are meant for us, in the order of their names.
pub(super) fn variables(env: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<Variable> {
    let mut variables: Vec<_> = env
        .into_iter()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| name.starts_with(ENV_PREFIX))
        .map(|(name, value)| Variable { name, value: value.into_string().ok() })
        .collect();
    variables.sort_by(|a, b| a.name.cmp(&b.name));
    variables
}

/// A value and where it stands.
struct Given<'t> {
    value: Spanned<DeValue<'t>>,
    origin: Origin,
}

/// What is wrong with a value, or with one item of a list: the byte it starts at, and a sentence.
struct Fault {
    at: usize,
    message: String,
}

/// The keys that were given, and the mistakes found so far.
pub(super) struct Reader<'t> {
    text: &'t str,
    /// The byte at which each line starts.
    lines: Vec<usize>,
    sections: BTreeSet<&'static str>,
    values: BTreeMap<&'static str, Given<'t>>,
    taken: BTreeSet<&'static str>,
    errors: Vec<ConfigError>,
}

impl<'t> Reader<'t> {
    /// Defaults, then the file, then the environment. Text that is not TOML ends it here.
    pub(super) fn new(text: &'t str, variables: &'t [Variable]) -> Result<Self, Errors> {
        let mut reader = Self {
            text,
            lines: iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect(),
            sections: BTreeSet::new(),
            values: defaults(),
            taken: BTreeSet::new(),
            errors: Vec::new(),
        };
        let table = reader.parse()?;
        reader.read_table("", table);
        for variable in variables {
            reader.read_variable(variable);
        }
        Ok(reader)
    }

    /// The TOML of the file, or its syntax errors: the first of each line, as one slip of the pen
    /// often has several. A name that is there twice is a mistake to go on from.
    fn parse(&mut self) -> Result<DeTable<'t>, Errors> {
        let (table, mistakes) = DeTable::parse_recoverable(self.text);
        let mut lines = BTreeSet::new();
        let mut errors = Vec::new();
        for mistake in mistakes {
            let span = mistake.span().unwrap_or_default();
            let origin = self.position(span.start);
            if mistake.message() == "duplicate key" {
                let name = quoted(self.text.get(span).unwrap_or_default());
                self.report("", origin, format!("{name} is there twice; one must go"));
                continue;
            }
            let Origin::File { line, .. } = origin else { continue };
            if lines.insert(line) {
                let message = format!("not valid TOML: {}", mistake.message());
                errors.push(ConfigError { key: String::new(), origin, message });
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
            let path =
                if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
            // A dot in a quoted name is a letter of it, not a step to another section.
            let dotted = name.contains('.');
            if let Some(section) = keys::find_section(&path).filter(|_| !dotted) {
                self.sections.insert(section.path);
                let at = value.span().start;
                match value.into_inner() {
                    DeValue::Table(table) => self.read_table(section.path, table),
                    other => {
                        let expected = format!("a table written as [{path}]");
                        let message = refusal(&expected, &other);
                        self.report(&path, self.position(at), message);
                    }
                }
            } else if let Some(key) = keys::find(&path).filter(|_| !dotted) {
                let origin = self.position(value.span().start);
                self.values.insert(key.path, Given { value, origin });
            } else {
                let message = match value.get_ref() {
                    DeValue::Table(_) => keys::unknown_section(&path),
                    _ => keys::unknown_key(&path, str::to_owned),
                };
                self.report(&shown(&path), origin, message);
            }
        }
    }

    fn read_variable(&mut self, variable: &'t Variable) {
        let origin = Origin::Variable(shown(&variable.name));
        let Some(key) = keys::KEYS.iter().find(|key| key.variable() == variable.name) else {
            let name = variable.name.strip_prefix(ENV_PREFIX).unwrap_or(&variable.name);
            let path = name.replace("__", ".").to_lowercase();
            let message = keys::unknown_key(&path, keys::variable);
            return self.report(&shown(&path), origin, message);
        };
        for section in keys::SECTIONS {
            let within = key.path.strip_prefix(section.path);
            if within.is_some_and(|rest| rest.starts_with('.')) {
                self.sections.insert(section.path);
            }
        }
        let Some(text) = &variable.value else {
            return self.report(key.path, origin, "the value is not UTF-8".to_owned());
        };
        let value = DeValue::parse(text)
            .unwrap_or_else(|_| Spanned::new(0..0, DeValue::String(text.into())));
        self.values.insert(key.path, Given { value, origin });
    }

    /// Whether the file or the environment names this section.
    pub(super) fn has(&self, section: &str) -> bool {
        self.sections.contains(section)
    }

    /// The value of a key, converted.
    pub(super) fn take<T>(
        &mut self,
        path: &'static str,
        convert: impl Fn(&DeValue<'_>) -> Result<T, String>,
    ) -> T {
        self.take_with(path, |value| {
            let at = value.span().start;
            convert(value.get_ref()).map_err(|message| vec![Fault { at, message }])
        })
    }

    /// The values of a list, each converted and then made into one; a value that is not a list
    /// is a list of one.
    pub(super) fn take_list<T, L>(
        &mut self,
        path: &'static str,
        item: impl Fn(&DeValue<'_>) -> Result<T, String>,
        whole: impl Fn(Vec<T>) -> Result<L, String>,
    ) -> L {
        self.take_with(path, |value| {
            let given = match value.get_ref() {
                DeValue::Array(items) => items.as_ref(),
                _ => slice::from_ref(value),
            };
            let mut items = Vec::with_capacity(given.len());
            let mut faults = Vec::new();
            for one in given {
                match item(one.get_ref()) {
                    Ok(converted) => items.push(converted),
                    Err(message) => faults.push(Fault { at: one.span().start, message }),
                }
            }
            if !faults.is_empty() {
                return Err(faults);
            }
            whole(items).map_err(|message| vec![Fault { at: value.span().start, message }])
        })
    }

    fn take_with<T>(
        &mut self,
        path: &'static str,
        convert: impl Fn(&Spanned<DeValue<'_>>) -> Result<T, Vec<Fault>>,
    ) -> T {
        let key =
            keys::find(path).expect("every key that is taken stands in KEYS: a test takes all");
        self.taken.insert(key.path);
        let mut found = Vec::new();
        match self.values.get(path) {
            None => {
                let literal = key.literal();
                found.push((Origin::Absent, format!("this key is required, such as {literal}")));
            }
            Some(given) => match convert(&given.value) {
                Ok(value) => return value,
                Err(faults) => found.extend(faults.into_iter().map(|fault| {
                    let origin = match &given.origin {
                        Origin::File { .. } => self.position(fault.at),
                        elsewhere => elsewhere.clone(),
                    };
                    (origin, fault.message)
                })),
            },
        }
        for (origin, message) in found {
            self.report(path, origin, message);
        }
        let stand_in = convert(&literal(key.literal())).map_err(|_| ());
        stand_in.expect("every literal in KEYS converts: a test takes all")
    }

    /// Records that two keys, both taken, don't go together; unless one of them is wrong by itself.
    /// The error stands where the first of them that was given stands.
    pub(super) fn clash(&mut self, path: &'static str, other: &'static str, message: String) {
        if self.errors.iter().any(|error| error.key == path || error.key == other) {
            return;
        }
        let origins = [path, other].into_iter().filter_map(|path| self.values.get(path));
        let origin = origins.map(|given| &given.origin).find(|origin| **origin != Origin::Absent);
        self.report(path, origin.cloned().unwrap_or(Origin::Absent), message);
    }

    /// Records a mistake.
    pub(super) fn report(&mut self, key: &str, origin: Origin, message: String) {
        self.errors.push(ConfigError { key: key.to_owned(), origin, message });
    }

    /// Each key's value as text.
    pub(super) fn texts(&self) -> Values {
        let texts = self.values.iter().map(|(path, given)| (*path, text(given.value.get_ref())));
        Values(texts.collect())
    }

    /// What was made of the values, unless there were mistakes.
    pub(super) fn finish<T>(self, config: T) -> Result<T, Errors> {
        Errors::unless_none(self.errors, config)
    }

    /// The keys that were taken so far.
    #[cfg(test)]
    pub(super) fn taken(&self) -> &BTreeSet<&'static str> {
        &self.taken
    }

    /// The line and column of a byte of the file.
    fn position(&self, at: usize) -> Origin {
        let line = self.lines.partition_point(|start| *start <= at);
        let start = self.lines[line - 1];
        let before = self.text.get(start..at).unwrap_or_default();
        Origin::File { line, column: before.chars().count() + 1 }
    }
}

fn defaults<'t>() -> BTreeMap<&'static str, Given<'t>> {
    let mut values = BTreeMap::new();
    for key in keys::KEYS {
        if let Preset::Default(text) = key.preset {
            values.insert(key.path, Given { value: literal(text), origin: Origin::Absent });
        }
    }
    values
}

fn literal(text: &'static str) -> Spanned<DeValue<'static>> {
    DeValue::parse(text).expect("every literal in KEYS is TOML: each start reads them all")
}
