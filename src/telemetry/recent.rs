//! The last warnings and errors of the log, for the operator's page.
//!
//! What is in them is what the log says, so there is no secret in them. Both their number and their
//! length are bounded.

use super::log::Fields;
use crate::config::LogFormat;
use ::log::{Level, Record};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// So many are kept: more than a person reads.
const KEPT: usize = 100;
/// Bytes of one, at most: a mistake in a configuration takes some hundred.
const LONGEST: usize = 1_000;

/// A warning or an error.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
    pub at: SystemTime,
    /// How bad.
    pub level: Level,
    /// What, on one line, with its fields as `name=value`.
    pub text: String,
}

/// The last of them, and how many there were in all.
#[derive(Debug, Default)]
pub struct Recent(Mutex<Events>);

#[derive(Debug, Default)]
struct Events {
    count: u64,
    last: VecDeque<Event>,
}

impl Recent {
    /// Keeps what a record says; `message` is its text.
    pub(super) fn add(&self, record: &Record<'_>, message: &str) {
        let mut line = message.as_bytes().to_vec();
        let mut fields = Fields { out: &mut line, format: LogFormat::Text };
        // visiting a record's own fields fails only where a visitor does
        let _ = record.key_values().visit(&mut fields);
        let mut text = String::from_utf8_lossy(&line).replace(char::is_control, " ");
        if text.len() > LONGEST {
            text.truncate(text.floor_char_boundary(LONGEST));
            text.push('…');
        }
        let mut events = self.lock();
        events.count += 1;
        if events.last.len() >= KEPT {
            events.last.pop_front();
        }
        events.last.push_back(Event { at: SystemTime::now(), level: record.level(), text });
    }

    /// How many there were since the start.
    pub fn count(&self) -> u64 {
        self.lock().count
    }

    /// Those that are kept, newest first.
    pub fn newest(&self) -> Vec<Event> {
        self.lock().last.iter().rev().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(recent: &Recent, message: &str) {
        let fields = [("key", "node.url")];
        let record = Record::builder()
            .level(Level::Warn)
            .args(format_args!("unused"))
            .key_values(&fields)
            .build();
        recent.add(&record, message);
    }

    #[test]
    fn the_last_hundred_are_kept_newest_first_and_all_are_counted() {
        let recent = Recent::default();
        for number in 0..250 {
            add(&recent, &format!("event {number}"));
        }
        let newest = recent.newest();
        assert_eq!((recent.count(), newest.len()), (250, KEPT));
        assert_eq!(newest[0].text, "event 249 key=node.url");
        assert_eq!(newest[KEPT - 1].text, "event 150 key=node.url");
    }

    #[test]
    fn a_line_is_one_line_and_no_longer_than_its_bound() {
        let recent = Recent::default();
        add(&recent, &format!("first\nsecond\u{1b}[31m {}", "é".repeat(LONGEST)));
        let text = &recent.newest()[0].text;
        assert!(text.starts_with("first second [31m é") && text.ends_with("é…"), "{text}");
        assert!(text.len() <= LONGEST + "…".len() && !text.contains(char::is_control), "{text}");
    }
}
