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

#[test]
fn entries_are_selected_by_each_option() {
    let (stage, _) = with_a_journal();
    exported(&stage);
    for (options, expected, why) in [
        (&[][..], &[1, 2, 3, 4][..], "all"),
        (&["--after", "0"], &[1, 2, 3, 4], "after nothing"),
        (&["--after", "3"], &[4], "after an entry"),
        (&["--after", "4"], &[], "after the last"),
        (&["--since", "1h"], &[1, 2, 3, 4], "of the last hour"),
        (&["--since", "0s"], &[], "from now on"),
        (
            &["--since", "2021-11-16T00:00:00Z"],
            &[1, 2, 3, 4],
            "a date",
        ),
        (
            &["--since", "2999-01-01T00:00:00+02:00"],
            &[],
            "a later date",
        ),
        (&["--state", "succeeded"], &[4], "a state"),
        (&["--state", "lost"], &[], "a state of none"),
        (&["--operation", "invoke"], &[1, 2, 3, 4], "an operation"),
        (&["--operation", "recovery-cancel"], &[], "of refusals only"),
        (
            &["--operation", "invoke", "--state", "sent", "--after", "1"],
            &[2],
            "several",
        ),
        (&["--state", "sent", "--after", "2"], &[], "contradictions"),
    ] {
        for command in ["list", "export"] {
            let arguments = [&[command], options].concat();
            assert_eq!(numbers(&stage, &arguments), expected, "{command}: {why}");
        }
    }
    let newest = ["list", "--last", "1", "--state", "sent"];
    assert_eq!(numbers(&stage, &newest), [2], "the newest of those");
}

/// Ends the minute of the refusals: they are older, and a command closes them.
fn close_refusals(stage: &Stage) {
    tamper(
        stage,
        "UPDATE refusal SET first_us = first_us - 60000000, last_us = last_us - 60000000",
    );
    let output = stage.setup.run_with("store", &["prune"], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn refusals_are_listed_and_exported_apart() {
    let (stage, _) = with_a_journal();
    let entries = exported(&stage);
    assert!(
        entries.iter().all(|entry| entry["kind"] != "refused"),
        "none is among the writes: {entries:?}"
    );
    let refused = ["--state", "refused"];
    let list = [&["list"][..], &refused].concat();
    let export = [&["export"][..], &refused].concat();
    assert_eq!(numbers(&stage, &list), [1], "at once");
    assert_eq!(numbers(&stage, &export), [0_i64; 0], "it may count more");
    close_refusals(&stage);
    let text = printed(&journal(&stage, &export));
    let entry: Value = serde_json::from_str(&text).expect("one entry");
    assert_eq!(entry["operation"], "recovery-cancel");
    assert_eq!(entry["detail"]["reason"], "argument_not_allowed");
    assert_eq!(entry["detail"]["count"], 1);
    for (options, expected) in [
        (["--operation", "recovery-cancel"], &[1][..]),
        (["--operation", "rpc"], &[]),
        (["--after", "1"], &[]),
        (["--since", "1h"], &[1]),
        (["--since", "30s"], &[]),
    ] {
        for command in [&list, &export] {
            let arguments = [&command[..], &options].concat();
            assert_eq!(numbers(&stage, &arguments), expected, "{arguments:?}");
        }
    }
    let verified = printed(&journal(&stage, &["verify"]));
    let refusals = verified.lines().nth(1).unwrap_or_default();
    let hash = entry["hash"].as_str().expect("a hash");
    assert_eq!(
        refusals,
        format!("1 entries of refusals, all unchanged; the last hash is {hash}")
    );
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
    assert_eq!(lines.len(), 4);
    let text = printed(&journal(&stage, &["export"]));
    let file = stage.folder.file("journal.ndjson");
    std::fs::write(&file, text).unwrap();
    let head = entries[3]["hash"].as_str().expect("a hash").to_owned();
    (stage, file, head)
}

#[test]
fn a_journal_contains_its_own_archive() {
    let (stage, file, head) = archived();
    let first = "0".repeat(64);
    for (archive, part) in [
        (&file, "all 4 entries of"),
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
        text.contains("MISSING: entry 3 in line 3 of") && text.contains("and 1 others"),
        "{text}"
    );
    let (code, text) = contains(&stage, &head);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("MISSING"), "{text}");
}

#[test]
fn refusals_that_were_pruned_are_not_missing() {
    let (stage, _, _) = archived();
    close_refusals(&stage);
    let file = stage.folder.file("refused.ndjson");
    let refused = printed(&journal(&stage, &["export", "--state", "refused"]));
    std::fs::write(&file, refused).unwrap();
    let (code, text) = contains(&stage, &file);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("all 1 entries of"), "{text}");
    let all = ["prune", "--refusals-older-than", "1s"];
    let output = stage.setup.run_with("store", &all, "");
    let deleted = printed(&output);
    assert!(
        deleted.contains(&format!("refusals {:>17} deleted", 1)),
        "{deleted}"
    );
    let (code, text) = contains(&stage, &file);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("except 1 refusals that were pruned"),
        "{text}"
    );
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
            "line 4: not an entry",
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
