//! What `--help` and the manual pages say beside the options: examples, exit codes, and what else
//! a command listens to.
//!
//! One table for all commands: `help/pages.rs`. A test parses each example with the definitions of
//! the command line.

mod pages;

use clap::Command;
use clap::builder::{StyledStr, Styles};
use pages::PAGES;
use std::fmt::Write as _;

#[cfg(test)]
mod tests;

/// What there is to say of a command.
pub(super) struct Page {
    /// Its path below the program, such as `store import`; `""` is the program.
    pub(super) command: &'static str,
    /// What somebody wants, and the line or the lines that do it.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Titles, each over terms and what they mean.
    pub(super) sections: &'static [(&'static str, Entries)],
}

/// Terms, and what each means.
type Entries = &'static [(&'static str, &'static str)];

/// The page of the command with this path.
pub(super) fn page(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.command == path)
}

/// The command line with examples under the help of each command.
pub(super) fn with_examples(program: Command) -> Command {
    adorn(program, "")
}

fn adorn(command: Command, path: &str) -> Command {
    let command = match page(path) {
        Some(page) => command.after_help(text(page)),
        None => command,
    };
    command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        adorn(below, path.trim_start())
    })
}

fn text(page: &Page) -> StyledStr {
    let styles = Styles::styled();
    let title = styles.get_header();
    let mut text = StyledStr::new();
    // writing to a string does not fail
    let _ = write!(text, "{title}Examples:{title:#}");
    for (what, line) in page.examples {
        let _ = write!(text, "\n  # {what}\n  {}", line.replace('\n', "\n  "));
    }
    for (name, entries) in page.sections {
        let _ = write!(text, "\n\n{title}{name}:{title:#}");
        let width = entries.iter().map(|(term, _)| term.len()).max().unwrap_or_default();
        for (term, meaning) in *entries {
            let _ = write!(text, "\n  {term:width$}  {meaning}");
        }
    }
    text
}
