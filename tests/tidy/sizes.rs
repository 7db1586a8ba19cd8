//! Sizes of files and functions in tokens. Those that are larger today are listed with their sizes,
//! which may only fall.

use std::collections::{BTreeMap, BTreeSet};

use crate::assert_none;
use crate::code::{SOURCES, Source, functions};

/// Maximum tokens of a file.
const MAX_FILE: usize = 4_500;
/// Maximum tokens of a function.
const MAX_FUNCTION: usize = 500;
/// Maximum tokens of a file of tests, and of the inline tests of another file, which count apart:
/// independent functions, read one by one.
const MAX_TEST_FILE: usize = 6_000;
/// Maximum tokens of a function of tests, which is often a table of cases.
const MAX_TEST_FUNCTION: usize = 1_000;
/// Maximum columns of a line, except for string literals that cannot be broken.
const MAX_COLUMNS: usize = 100;

/// Functions that are longer today, with their sizes: of the program, then of tests. One that fits
/// leaves the list.
const LONG_FUNCTIONS: [(&str, &str, usize); 7] = [
    ("filters/src/ledger/change.rs", "change", 604),
    ("dev/src/lib.rs", "start", 537),
    ("edge/src/http/accept.rs", "process_new", 524),
    ("edge/src/http/http2/mod.rs", "start", 531),
    ("program/src/process/server.rs", "build", 616),
    ("edge/src/proxy/gateway.rs", "answer", 646),
    (
        "tests/store/upgrade.rs",
        "intents_of_older_versions_are_kept",
        1060,
    ),
];

#[test]
fn files_and_lines_stay_readable() {
    let mut wrong = Vec::new();
    for source in SOURCES.iter() {
        let program = source.program.len();
        let tests = source.all.len() - program;
        if program > MAX_FILE {
            wrong.push(format!("{}: {program} tokens", source.name));
        }
        if tests > MAX_TEST_FILE {
            wrong.push(format!("{}: {tests} tokens of tests", source.name));
        }
        for (at, line) in source.text.lines().enumerate() {
            let unbreakable = line.contains("r#\"");
            if line.chars().count() > MAX_COLUMNS && !unbreakable {
                let place = format!("{}:{}", source.name, at + 1);
                wrong.push(format!("{place}: over {MAX_COLUMNS} columns"));
            }
        }
    }
    assert_none("split what has grown", &wrong);
}

#[test]
fn functions_stay_readable() {
    let mut listed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (file, function, size) in LONG_FUNCTIONS {
        listed.insert((file, function), size);
    }
    let mut wrong = Vec::new();
    for source in SOURCES.iter() {
        for (name, size) in long_functions(source) {
            let most = listed.remove(&(source.name.as_str(), name)).unwrap_or(0);
            if size > most {
                let listed = format!("{size} tokens, {most} in the list");
                wrong.push(format!("{}: {name} has {listed}", source.name));
            }
        }
    }
    for (file, function) in listed.keys() {
        wrong.push(format!(
            "{file}: {function} fits, or is gone: remove it from the list"
        ));
    }
    assert_none("split what has grown", &wrong);
}

/// The functions of a file that are too long, with their sizes.
fn long_functions(source: &Source) -> Vec<(&str, usize)> {
    let program: BTreeSet<usize> = functions(&source.program)
        .iter()
        .map(|function| function.line)
        .collect();
    let mut long = Vec::new();
    for function in functions(&source.all) {
        let most = if program.contains(&function.line) {
            MAX_FUNCTION
        } else {
            MAX_TEST_FUNCTION
        };
        if function.size > most {
            long.push((function.name, function.size));
        }
    }
    long
}
