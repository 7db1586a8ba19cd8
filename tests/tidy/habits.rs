//! Habits that hinder reading, counted in the program outside its tests. Each count may only fall;
//! lower its limit with it.

use std::collections::BTreeSet;

use crate::assert_none;
use crate::code::{SOURCES, Token, bracketed, items, starts_with, until};

/// `let name = |…| …`: a helper inside its user. A closure gets a name when it is passed twice.
const NAMED_CLOSURES: usize = 292;
/// `let (a, b) = (x, y)`, also in `if let`.
const TUPLE_LETS: usize = 151;
/// `let (a, b, c) = …`: more than two names at once.
const WIDE_LETS: usize = 14;
/// `.then(…)` and `.then_some(…)`, which are an `if`.
const THENS: usize = 143;
/// `.filter(|_| …)`, which is an `if`, too.
const BLIND_FILTERS: usize = 73;
/// `match` on a `bool`.
const BOOL_MATCHES: usize = 14;

struct Habit {
    name: &'static str,
    /// The count of today.
    most: usize,
    /// Whether it is at the beginning of these tokens.
    begins: fn(&[Token]) -> bool,
}

const HABITS: [Habit; 6] = [
    Habit {
        name: "closures with a name",
        most: NAMED_CLOSURES,
        begins: begins_named_closure,
    },
    Habit {
        name: "lets that take a tuple apart",
        most: TUPLE_LETS,
        begins: begins_tuple_let,
    },
    Habit {
        name: "lets of more than two names",
        most: WIDE_LETS,
        begins: begins_wide_let,
    },
    Habit {
        name: ".then() and .then_some()",
        most: THENS,
        begins: begins_then,
    },
    Habit {
        name: ".filter(|_| …)",
        most: BLIND_FILTERS,
        begins: begins_blind_filter,
    },
    Habit {
        name: "matches on a bool",
        most: BOOL_MATCHES,
        begins: begins_bool_match,
    },
];

#[test]
fn habits_that_hinder_reading_only_decline() {
    let mut wrong = Vec::new();
    for habit in HABITS {
        let places = places(habit.begins);
        println!("{}: {} of {}", habit.name, places.len(), habit.most);
        if places.len() > habit.most {
            wrong.push(format!(
                "{} {}, {} at most: {}",
                places.len(),
                habit.name,
                habit.most,
                places.join(" ")
            ));
        }
    }
    assert_none("write if, match, return or a function", &wrong);
}

/// `tests/it/tasks.rs` lets each name panic once.
#[test]
fn each_background_task_has_a_name_and_survives_a_panic() {
    let places = places(|code| starts_with(code, &["background_service", "("]));
    assert_eq!(places.len(), 1, "`Part::task` starts them: {places:?}");
    let (mut tasks, mut names) = (0, BTreeSet::new());
    for source in SOURCES.iter() {
        for at in 0..source.program.len() {
            let code = &source.program[at..];
            if starts_with(code, &["BackgroundService", "for"]) {
                tasks += 1;
            }
            if starts_with(code, &["Part", "::", "task", "("]) {
                assert!(starts_with(&code[4..], &["Task", "::"]), "{}", source.name);
                assert!(names.insert(&code[6].text), "{} twice", code[6].text);
            }
        }
    }
    // one restarts the others
    assert_eq!(tasks, names.len() + 1, "{names:?}");
}

/// The places of the program where a habit begins.
fn places(begins: fn(&[Token]) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in SOURCES.iter().filter(|source| source.is_of_program()) {
        for (at, token) in source.program.iter().enumerate() {
            if begins(&source.program[at..]) {
                found.push(format!("{}:{}", source.name, token.line));
            }
        }
    }
    found
}

fn begins_named_closure(code: &[Token]) -> bool {
    if !starts_with(code, &["let"]) {
        return false;
    }
    let value = &code[until(&["=", ";"], code)..];
    let value = match value {
        [first, rest @ ..] if first.text == "move" => rest,
        _ => value,
    };
    starts_with(value, &["|"]) || starts_with(value, &["||"])
}

fn begins_tuple_let(code: &[Token]) -> bool {
    starts_with(code, &["let", "("]) && starts_with(&code[1 + bracketed(&code[1..])..], &["=", "("])
}

fn begins_wide_let(code: &[Token]) -> bool {
    starts_with(code, &["let", "("]) && items(&code[2..bracketed(&code[1..])]).len() > 2
}

fn begins_then(code: &[Token]) -> bool {
    starts_with(code, &[".", "then", "("]) || starts_with(code, &[".", "then_some", "("])
}

fn begins_blind_filter(code: &[Token]) -> bool {
    starts_with(code, &[".", "filter", "(", "|", "_", "|"])
}

/// The pattern of its first arm is a value of `bool`.
fn begins_bool_match(code: &[Token]) -> bool {
    if !starts_with(code, &["match"]) {
        return false;
    }
    let arms = &code[until(&["{"], code)..];
    starts_with(arms, &["true", "=>"]) || starts_with(arms, &["false", "=>"])
}
