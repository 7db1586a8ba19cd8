//! The keys of a configuration: which of them a name is, or which was meant. A misspelt name is
//! reported with the right one; as a variable it would otherwise have no effect.

use super::error::{closest, distance};
use super::key::{Key, Section};

/// Variables of OpenTelemetry, and the keys that they override unless our own variables do.
const STANDARD: [(&str, &str); 4] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "trace.endpoint"),
    ("OTEL_RESOURCE_ATTRIBUTES", "trace.resource_attributes"),
    ("OTEL_SERVICE_NAME", "trace.service_name"),
    ("OTEL_TRACES_SAMPLER_ARG", "trace.ratio"),
];

/// The maximum edit distance of a name that is similar to a key's.
const SIMILAR: usize = 2;

/// Sections, in the order of the example file.
#[derive(Clone, Copy)]
pub(super) struct Keys(pub(super) &'static [Section]);

impl Keys {
    /// Every key, in the order of the example file.
    pub(super) fn all(self) -> impl Iterator<Item = &'static Key> {
        self.0.iter().flat_map(|section| section.keys)
    }

    pub(super) fn find(self, path: &str) -> Option<&'static Key> {
        self.all().find(|key| key.path == path)
    }

    /// The key that a variable of OpenTelemetry overrides.
    pub(super) fn of_standard(self, variable: &str) -> Option<&'static Key> {
        let (_, path) = STANDARD.iter().find(|(name, _)| *name == variable)?;
        self.find(path)
    }

    /// The paths of all sections.
    pub(super) fn sections(self) -> impl Iterator<Item = &'static str> {
        let named = self.0.iter().filter(|section| !section.about.is_empty());
        named.map(|section| section.path)
    }

    /// Whether the names of some sections begin with this one, as `tls.acme` does with `tls`.
    pub(super) fn is_around_section(self, path: &str) -> bool {
        self.sections().any(|section| {
            section
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('.'))
        })
    }

    /// The key that a variable's name spells with other underscores, or in lower case.
    pub(super) fn with_same_letters(self, name: &str) -> Option<&'static Key> {
        let words = joined_words(name);
        self.all()
            .find(|key| joined_words(&key.variable()) == words)
    }

    /// The key that a variable's name spells with at most [`SIMILAR`] wrong letters.
    pub(super) fn with_similar_letters(self, name: &str) -> Option<&'static Key> {
        let words = joined_words(name);
        let distance = |key: &&Key| distance(&words, &joined_words(&key.variable()));
        self.all()
            .min_by_key(distance)
            .filter(|key| distance(key) <= SIMILAR)
    }

    /// The message for an unknown key; `shown` formats a suggested path.
    pub(super) fn unknown_key(self, path: &str, shown: impl Fn(&str) -> String) -> String {
        if let Some(near) = closest(path, self.all().map(|key| key.path), last_segment) {
            return format!("unknown key; did you mean {}?", shown(near));
        }
        let parent = path.rsplit_once('.').map(|(parent, _)| parent);
        match self.sections().find(|section| Some(*section) == parent) {
            Some(section) => {
                let own = self.all().map(Key::split).filter(|(of, _)| *of == section);
                let names: Vec<_> = own.map(|(_, name)| name).collect();
                format!("unknown key; [{section}] has {}", names.join(", "))
            }
            None => format!("unknown key; the sections are {}", self.section_list()),
        }
    }

    /// The message for an unknown section.
    pub(super) fn unknown_section(self, path: &str) -> String {
        match closest(path, self.sections(), last_segment) {
            Some(near) => format!("unknown section; did you mean [{near}]?"),
            None => format!("unknown section; the sections are {}", self.section_list()),
        }
    }

    fn section_list(self) -> String {
        self.sections().collect::<Vec<_>>().join(", ")
    }
}

/// A name in lower case, with one underscore between its words.
fn joined_words(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let words = name.split('_').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

fn last_segment(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, last)| last)
}
