//! The most recent warnings and errors of the log, for the operator's page: bounded in number and
//! length, and like the log free of secrets.

use super::log::fields::Fields;
use crate::config::LogFormat;
use ::log::{Level, Record};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::SystemTime;

/// How many events are stored.
const MAX_EVENTS: usize = 100;
/// Bytes of one event; an error in a configuration has a few hundred.
const MAX_BYTES: usize = 1_000;

/// A warning or an error.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it was logged.
    pub at: SystemTime,
    /// Warning or error.
    pub level: Level,
    /// Message and fields (`name=value`) on one line.
    pub text: String,
}

/// The most recent events, and the number of all.
#[derive(Debug, Default)]
pub struct Recent(Mutex<Events>);

#[derive(Debug, Default)]
struct Events {
    count: u64,
    last: VecDeque<Event>,
}

impl Recent {
    /// Adds a record; `message` is its text.
    pub(super) fn add(&self, record: &Record<'_>, message: &str) {
        let mut line = message.as_bytes().to_vec();
        let mut fields = Fields {
            out: &mut line,
            format: LogFormat::Text,
        };
        // visiting a record's own fields fails only if the visitor does
        let _ = record.key_values().visit(&mut fields);
        let mut text = String::from_utf8_lossy(&line).replace(char::is_control, " ");
        if text.len() > MAX_BYTES {
            text.truncate(text.floor_char_boundary(MAX_BYTES));
            text.push('…');
        }
        let mut events = self.0.lock();
        events.count += 1;
        if events.last.len() >= MAX_EVENTS {
            events.last.pop_front();
        }
        events.last.push_back(Event {
            at: SystemTime::now(),
            level: record.level(),
            text,
        });
    }

    /// The number of events since start.
    pub fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// The stored events, newest first.
    pub fn newest(&self) -> Vec<Event> {
        self.0.lock().last.iter().rev().cloned().collect()
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
    fn the_last_hundred_are_listed_newest_first_and_all_are_counted() {
        let recent = Recent::default();
        for number in 0..250 {
            add(&recent, &format!("event {number}"));
        }
        let newest = recent.newest();
        assert_eq!((recent.count(), newest.len()), (250, MAX_EVENTS));
        assert_eq!(newest[0].text, "event 249 key=node.url");
        assert_eq!(newest[MAX_EVENTS - 1].text, "event 150 key=node.url");
    }

    #[test]
    fn a_line_is_one_line_and_no_longer_than_its_bound() {
        let recent = Recent::default();
        add(
            &recent,
            &format!("first\nsecond\u{1b}[31m {}", "é".repeat(MAX_BYTES)),
        );
        let text = &recent.newest()[0].text;
        assert!(
            text.starts_with("first second [31m é") && text.ends_with("é…"),
            "{text}"
        );
        assert!(
            text.len() <= MAX_BYTES + "…".len() && !text.contains(char::is_control),
            "{text}"
        );
    }
}
