//! Parameters of functions: each has a name of its own, and none is a flag.

use crate::assert_none;
use crate::code::{SOURCES, Token, functions, texts};

/// Signatures that are not ours: of Pingora's sessions and of serde's visitors.
const FOREIGN_FLAGS: [&str; 2] = ["_", "value"];

/// The parameters in `code` that are wrong, each after the line of its function.
fn find(code: &[Token], is_wrong: fn(&[&str]) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for function in functions(code) {
        for parameter in function.parameters {
            let texts = texts(parameter);
            if is_wrong(&texts) {
                found.push(format!("{}: {}", function.line, texts.join(" ")));
            }
        }
    }
    found
}

#[test]
fn parameters_are_no_tuples() {
    let mut wrong = Vec::new();
    for source in SOURCES.iter().filter(|source| source.is_of_program()) {
        for found in find(&source.all, is_tuple) {
            wrong.push(format!("{}:{found}", source.name));
        }
    }
    assert_none("a parameter has a name of its own", &wrong);
}

fn is_tuple(parameter: &[&str]) -> bool {
    matches!(parameter, ["(", second, ..] if *second != ")")
}

#[test]
fn parameters_are_no_flags() {
    let mut wrong = Vec::new();
    for source in SOURCES.iter().filter(|source| source.is_of_program()) {
        for found in find(&source.program, is_flag) {
            wrong.push(format!("{}:{found}", source.name));
        }
    }
    assert_none("an enum, or two functions, says more than a flag", &wrong);
}

fn is_flag(parameter: &[&str]) -> bool {
    matches!(parameter, [.., name, ":", "bool"] if !FOREIGN_FLAGS.contains(name))
}
