//! The list of mistakes that `tests/planted` makes in the flows and the ledger.

use std::fs;
use std::path::Path;

const LIST: &str = include_str!("mistakes.txt");

/// Text with one space where it has spaces or line ends.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A right text, and the entry and the file that it is of.
struct Right {
    of: String,
    file: String,
    text: String,
}

fn rights() -> Vec<Right> {
    let mut name = "";
    let mut rights: Vec<Right> = Vec::new();
    for line in LIST.lines() {
        if let Some(of) = line.strip_prefix("== ") {
            name = of;
        } else if let Some(file) = line.strip_prefix("@ ") {
            rights.push(Right {
                of: name.to_owned(),
                file: file.to_owned(),
                text: String::new(),
            });
        } else if let Some(text) = line.strip_prefix("- ")
            && let Some(right) = rights.last_mut()
        {
            right.text = words(&format!("{} {text}", right.text));
        }
    }
    rights
}

#[test]
fn each_planted_mistake_has_one_place() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for Right { of, file, text } in rights() {
        let source = words(&fs::read_to_string(sources.join(&file)).unwrap_or_default());
        let times = source.matches(&text).count();
        if times != 1 || text.is_empty() {
            wrong.push(format!("{of}: its text occurs {times} times in {file}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
