//! `portcullis man`: the manual pages, rendered from the same definitions as `--help`.
//!
//! One page for the program, and one for each command: `portcullis-store-import(1)`.

use super::help;
use clap::Command;
use clap::builder::Resettable;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use portcullis_program::command::{Outcome, written};
use std::io::{self, Write as _};
use std::path::Path;

pub(super) const HELP: &str = "\
Examples:
  # read the page of the program
  portcullis man | man -l -
  # install all of them
  portcullis man /usr/local/share/man/man1

Exit codes:
  0   success
  2   usage
  70  internal error";

const SOURCE: &str = concat!("portcullis ", env!("CARGO_PKG_VERSION"));
/// No date, quoted for roff: without it the next field would be the date.
const DATE: &str = "\"\"";

pub(super) fn run(folder: Option<&Path>) -> Outcome {
    match folder {
        Some(folder) => written(&format!("man: {}", folder.display()), write_all(folder)),
        None => written("man", write_program()),
    }
}

fn program() -> Command {
    let mut program = super::command().disable_help_subcommand(true);
    program.build();
    program
}

fn write_program() -> io::Result<()> {
    let (_, text) = rendered(&program(), "")?;
    io::stdout().write_all(&text)
}

fn write_all(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut out = io::stdout().lock();
    for (command, path) in tree(&program()) {
        let (name, text) = rendered(command, &path)?;
        let file = folder.join(name);
        std::fs::write(&file, text)?;
        writeln!(out, "{}", file.display())?;
    }
    Ok(())
}

/// A command and all its subcommands, each with its path, such as `store import`.
fn tree(program: &Command) -> Vec<(&Command, String)> {
    let mut found = vec![(program, String::new())];
    let mut next = 0;
    while let Some((command, path)) = found.get(next).cloned() {
        for below in command
            .get_subcommands()
            .filter(|below| below.get_name() != "help")
        {
            found.push((
                below,
                format!("{path} {}", below.get_name())
                    .trim_start()
                    .to_owned(),
            ));
        }
        next += 1;
    }
    found
}

/// Renders a page; returns the name of its file and the text.
fn rendered(command: &Command, path: &str) -> io::Result<(String, Vec<u8>)> {
    let own = command.clone().after_help(Resettable::Reset);
    let man = Man::new(own).date(DATE).source(SOURCE).manual("Portcullis");
    let mut text = Vec::new();
    man.render(&mut text)?;
    sections(command, path).to_writer(&mut text)?;
    Ok((man.get_filename(), text))
}

/// The blocks of the help as sections.
fn sections(command: &Command, path: &str) -> Roff {
    let mut roff = Roff::new();
    for (title, lines) in help::blocks(command) {
        roff.control("SH", [&*title.to_uppercase()]);
        for line in lines.iter().map(|line| line.trim_start()) {
            if let Some(description) = line.strip_prefix("# ") {
                roff.control("PP", [])
                    .text([roman(format!("{description}:"))]);
            } else if title == "Examples" {
                roff.control("RS", []).control("EX", []).text([roman(line)]);
                roff.control("EE", []).control("RE", []);
            } else {
                let (term, meaning) = line.split_once("  ").unwrap_or((line, ""));
                roff.control("TP", [])
                    .text([bold(term)])
                    .text([roman(meaning.trim_start())]);
            }
        }
    }
    if !path.is_empty() {
        roff.control("SH", ["SEE ALSO"])
            .text([bold("portcullis"), roman("(1)")]);
    }
    roff
}
