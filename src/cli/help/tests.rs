//! The help of every command, and its examples, against the definitions of the command line.

use super::*;
use crate::cli::Arguments;
use crate::cli::man::tree;
use clap::{CommandFactory as _, Parser as _};
use std::collections::BTreeSet;

#[test]
fn the_command_line_is_well_defined() {
    with_examples(Arguments::command()).debug_assert();
}

#[test]
fn every_command_has_a_page_with_examples_of_its_own_and_its_exit_codes() {
    let program = Arguments::command();
    let paths: Vec<_> = tree(&program).into_iter().map(|(_, path)| path).collect();
    let told: Vec<_> = PAGES.iter().map(|page| page.command).collect();
    let sorted = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
    let known: BTreeSet<String> = paths.iter().cloned().collect();
    assert_eq!(known, sorted(&told), "one page for each command, and none for another");
    assert_eq!(told.len(), known.len(), "no command has two pages");
    for page in PAGES {
        let of_its_own = |line: &str| line.contains(&format!("portcullis {}", page.command));
        let words = page.command.split(' ').collect::<Vec<_>>();
        // the options of `journal` stand between its name and that of its command
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        let shown = page.examples.iter().any(|(_, line)| of_its_own(line) || has_all(line));
        assert!(shown, "{}: an example of itself", page.command);
        let codes = page.sections.iter().find(|(title, _)| *title == "Exit codes");
        let (_, codes) = codes.unwrap_or_else(|| panic!("{}: exit codes", page.command));
        assert!(codes.iter().all(|(code, _)| ["0", "1", "2", "70"].contains(code)), "{codes:?}");
    }
}

#[test]
fn every_example_parses() {
    for page in PAGES {
        for (_, line) in page.examples {
            let start = line.find("portcullis ").expect("an example runs the program");
            let end = [" | ", " > ", ")", "\n"].map(|end| line[start..].find(end));
            let end = end.into_iter().flatten().min().map_or(line.len(), |end| start + end);
            let words: Vec<_> = line[start..end].split_whitespace().collect();
            if let Err(error) = Arguments::try_parse_from(&words) {
                let is_help = error.kind() == clap::error::ErrorKind::DisplayHelp;
                assert!(is_help, "{line}: {error}");
            }
        }
    }
}

#[test]
fn examples_and_exit_codes_stand_under_the_help_of_each_command() {
    let mut program = with_examples(Arguments::command());
    program.build();
    for (command, path) in tree(&program) {
        let page = page(&path).expect("every command has a page");
        let (short, long) = (command.clone().render_help(), command.clone().render_long_help());
        for help in [short.to_string(), long.to_string()] {
            for (_, line) in page.examples {
                let line = line.replace('\n', "\n  ");
                assert!(help.contains(&format!("\n  {line}")), "{path}: {line} in {help}");
            }
            assert!(help.contains("\nExit codes:\n"), "{path}: {help}");
        }
    }
}

#[test]
fn every_option_is_explained() {
    let program = Arguments::command();
    for (command, path) in tree(&program) {
        assert!(command.get_about().is_some(), "{path} says what it is for");
        for option in command.get_arguments() {
            assert!(option.get_help().is_some(), "{path} {}", option.get_id());
        }
    }
}
