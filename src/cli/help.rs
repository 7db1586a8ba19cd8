//! The text under `--help` and in the manual pages: examples, exit codes, signals.
//!
//! Each command has it as `after_help` at its definition, in blocks: a title, then indented lines.
//! A test parses every example with the definitions of the command line.

use clap::Command;
use clap::builder::{StyledStr, Styles};
use std::fmt::Write as _;

/// The titles of a command's blocks, each with its lines.
pub(super) fn blocks(command: &Command) -> Vec<(String, Vec<String>)> {
    let text = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let block = |block: &str| {
        let (title, lines) = block.split_once(":\n")?;
        Some((title.to_owned(), lines.lines().map(str::to_owned).collect()))
    };
    text.split("\n\n").filter_map(block).collect()
}

/// Formats the titles of all help texts in clap's style of headings.
pub(super) fn styled(program: Command) -> Command {
    let styles = Styles::styled();
    let style = styles.get_header();
    let mut text = StyledStr::new();
    for (at, (title, lines)) in blocks(&program).iter().enumerate() {
        let gap = if at == 0 { "" } else { "\n\n" };
        // writing to a string does not fail
        let _ = write!(text, "{gap}{style}{title}:{style:#}\n{}", lines.join("\n"));
    }
    program.after_help(text).mut_subcommands(styled)
}
