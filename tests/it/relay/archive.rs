//! `portcullis journal`: which entries are listed, and whether an archive is still contained.

use super::commands::{exported, journal, printed, tamper, with_a_journal};
use crate::support::relay::stage::Stage;
use serde_json::Value;

/// The numbers of the entries that a command prints, and its exit code.
fn numbers(stage: &Stage, arguments: &[&str]) -> Vec<i64> {
    let output = journal(stage, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    let number = |line: &str| match serde_json::from_str::<Value>(line) {
        Ok(entry) => entry["seq"].as_i64(),
        Err(_) => line.split_whitespace().next()?.parse().ok(),
    };
    let text = printed(&output);
    let numbers = text.lines().map(|line| number(line).expect("a number"));
    numbers.collect()
}

/// Whether an option selects an entry.
type Selects = fn(&Value) -> bool;

#[test]
fn entries_are_selected_by_each_option() {
    let (stage, _) = with_a_journal();
    let entries = exported(&stage);
    let cases: [(&[&str], Selects); 13] = [
        (&[], |_| true),
        (&["--after", "0"], |_| true),
        (&["--after", "3"], |entry| entry["seq"].as_i64() > Some(3)),
        (&["--after", "5"], |_| false),
        (&["--since", "1h"], |_| true),
        (&["--since", "0s"], |_| false),
        (&["--since", "2021-11-16T00:00:00Z"], |_| true),
        (&["--since", "2999-01-01T00:00:00+02:00"], |_| false),
        (&["--state", "succeeded"], |entry| {
            entry["kind"] == "succeeded"
        }),
        (&["--state", "refused"], |entry| entry["kind"] == "refused"),
        (&["--state", "lost"], |_| false),
        (&["--operation", "invoke"], |entry| {
            entry["operation"] == "invoke"
        }),
        (
            &["--operation", "invoke", "--state", "sent", "--after", "1"],
            |entry| entry["kind"] == "sent",
        ),
    ];
    for (options, selects) in cases {
        let selected = entries.iter().filter(|entry| selects(entry));
        let expected: Vec<_> = selected.filter_map(|entry| entry["seq"].as_i64()).collect();
        for command in ["list", "export"] {
            let arguments = [&[command], options].concat();
            assert_eq!(numbers(&stage, &arguments), expected, "{arguments:?}");
        }
    }
    let newest = ["list", "--last", "1", "--state", "sent"];
    assert_eq!(numbers(&stage, &newest).len(), 1, "the newest of those");
}

#[test]
fn refusals_beyond_those_in_the_journal_are_counted() {
    let (stage, _) = with_a_journal();
    let counted = "INSERT INTO refusal VALUES ('rpc', 'batch', 1000000, 2000000, 990)";
    tamper(&stage, counted);
    let refused = ["list", "--state", "refused"];
    let list = printed(&journal(&stage, &refused));
    let [entry, count] = list.lines().collect::<Vec<_>>()[..] else {
        panic!("an entry and a count: {list}")
    };
    assert!(entry.contains("argument_not_allowed"), "{entry}");
    let expected = "     -  1970-01-01T00:00:02.000Z       -  refused    rpc                  \
        {\"count\":990,\"first\":\"1970-01-01T00:00:01.000Z\",\"reason\":\"batch\"}";
    assert_eq!(count, expected);
    for options in [["--operation", "register"], ["--since", "1h"]] {
        let list = printed(&journal(&stage, &[&refused[..], &options].concat()));
        assert!(!list.contains("990"), "{options:?}: {list}");
    }
}

#[test]
fn an_option_that_selects_nothing_is_explained() {
    let (stage, _) = with_a_journal();
    for (options, part) in [
        (["--after", "x"], "invalid value 'x' for '--after <NUMBER>'"),
        (["--after", "-1"], "-1"),
        (
            ["--since", "yesterday"],
            "expected a time such as 2026-11-24T17:00:00Z",
        ),
        (
            ["--since", "2026-13-01T00:00:00Z"],
            "expected a time such as",
        ),
        (["--state", "gone"], "[possible values: intended, sent"),
        (["--operation", "mint_card"], "mint-card"),
    ] {
        for command in ["list", "export"] {
            let output = journal(&stage, &[&[command], &options[..]].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
            assert!(said.contains(part), "{options:?}: {said}");
        }
    }
}

/// Exit code and output of `journal verify --contains`.
fn contains(stage: &Stage, archive: &str) -> (Option<i32>, String) {
    let output = journal(stage, &["verify", "--contains", archive]);
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// A relay with a journal, the file of its export, and its last hash.
fn archived() -> (Stage, String, String) {
    let (stage, _) = with_a_journal();
    let entries = exported(&stage);
    let lines: Vec<String> = entries.iter().map(Value::to_string).collect();
    assert_eq!(lines.len(), 5);
    let text = printed(&journal(&stage, &["export"]));
    let file = stage.folder.file("journal.ndjson");
    std::fs::write(&file, text).unwrap();
    let head = entries[4]["hash"].as_str().expect("a hash").to_owned();
    (stage, file, head)
}

#[test]
fn a_journal_contains_its_own_archive() {
    let (stage, file, head) = archived();
    let first = "0".repeat(64);
    for (archive, part) in [
        (&file, "all 5 entries of"),
        (&head, "is contained"),
        (&head.to_uppercase(), "is contained"),
        (&first, "is contained"),
    ] {
        let (code, text) = contains(&stage, archive);
        assert_eq!(code, Some(0), "{archive}: {text}");
        assert!(text.contains(part), "{archive}: {text}");
    }
    let (code, text) = contains(&stage, &"ab".repeat(32));
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("MISSING: an entry with the hash abab"),
        "{text}"
    );
}

#[test]
fn a_journal_that_was_cut_lacks_its_archive() {
    let (stage, file, head) = archived();
    let third = "UPDATE chain_head SET seq = 2, hash = (SELECT hash FROM journal WHERE seq = 2)";
    tamper(&stage, "DELETE FROM journal WHERE seq = 5");
    tamper(&stage, "DELETE FROM journal WHERE seq = 4");
    tamper(&stage, "DELETE FROM journal WHERE seq = 3");
    tamper(&stage, third);
    let output = journal(&stage, &["verify"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "alone it is whole: {output:?}"
    );
    let (code, text) = contains(&stage, &file);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("MISSING: entry 3 in line 3 of") && text.contains("and 2 others"),
        "{text}"
    );
    let (code, text) = contains(&stage, &head);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("MISSING"), "{text}");
}

#[test]
fn an_unusable_archive_is_explained() {
    let (stage, file, _) = archived();
    let text = std::fs::read_to_string(&file).unwrap();
    let write = |name: &str, text: &str| {
        let path = stage.folder.file(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let changed = text.replacen("\"operation\":\"invoke\"", "\"operation\":\"mint-card\"", 2);
    for (archive, part) in [
        (
            stage.folder.file("none"),
            "expected 64 hexadecimal digits, or a file of `journal export`",
        ),
        ("ab".repeat(31), "expected 64 hexadecimal digits"),
        (write("empty", ""), "there is no entry in it"),
        (write("text", "{}\n"), "line 1: not an entry"),
        (
            write("cut", &text[..text.len() - 9]),
            "line 5: not an entry",
        ),
        (
            write("changed", &changed),
            "line 1: the hash is not that of",
        ),
    ] {
        let (code, said) = contains(&stage, &archive);
        assert_eq!(code, Some(2), "{archive}: {said}");
        assert!(said.contains(part), "{archive}: {said}");
    }
}
