//! `portcullis man`: the manual pages, made of the same definitions as `--help`.
//!
//! One page for the program, and one for each command: `portcullis-store-import(1)`.

use super::help::{Page, page};
use super::{Arguments, INTERNAL};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;

const SOURCE: &str = concat!("portcullis ", env!("CARGO_PKG_VERSION"));
/// None, in the words of roff: nothing at all would make the next field the date.
const DATE: &str = "\"\"";

pub(super) fn run(folder: Option<&Path>) -> ExitCode {
    match write(folder) {
        Ok(()) => ExitCode::SUCCESS,
        // whoever reads it has seen enough
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let place = folder.map(|folder| format!("{}: ", folder.display())).unwrap_or_default();
            eprintln!("portcullis man: {place}{error}");
            ExitCode::from(INTERNAL)
        }
    }
}

fn write(folder: Option<&Path>) -> io::Result<()> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let Some(folder) = folder else {
        let (_, text) = rendered(&program, "")?;
        return io::stdout().write_all(&text);
    };
    std::fs::create_dir_all(folder)?;
    let mut out = io::stdout().lock();
    for (command, path) in tree(&program) {
        let (name, text) = rendered(command, &path)?;
        let file = folder.join(name);
        std::fs::write(&file, text)?;
        writeln!(out, "{}", file.display())?;
    }
    Ok(())
}

/// A command and all below it, each with its path, such as `store import`.
pub(super) fn tree(program: &Command) -> Vec<(&Command, String)> {
    let mut found = vec![(program, String::new())];
    let mut next = 0;
    while let Some((command, path)) = found.get(next).cloned() {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            found.push((below, format!("{path} {}", below.get_name()).trim_start().to_owned()));
        }
        next += 1;
    }
    found
}

/// A page, and the name of its file.
fn rendered(command: &Command, path: &str) -> io::Result<(String, Vec<u8>)> {
    let man = Man::new(command.clone()).date(DATE).source(SOURCE).manual("Portcullis");
    let mut text = Vec::new();
    man.render(&mut text)?;
    if let Some(page) = page(path) {
        more(page).to_writer(&mut text)?;
    }
    Ok((man.get_filename(), text))
}

/// What the definitions of the options do not know.
fn more(page: &Page) -> Roff {
    let mut roff = Roff::new();
    for (title, entries) in page.sections {
        roff.control("SH", [&*title.to_uppercase()]);
        for (term, text) in *entries {
            roff.control("TP", []).text([bold(*term)]).text([roman(*text)]);
        }
    }
    roff.control("SH", ["EXAMPLES"]);
    for (at, (what, line)) in page.examples.iter().enumerate() {
        if at > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(format!("{what}:"))]);
        roff.control("RS", []).control("EX", []).text([roman(*line)]);
        roff.control("EE", []).control("RE", []);
    }
    if !page.command.is_empty() {
        roff.control("SH", ["SEE ALSO"]).text([bold("portcullis"), roman("(1)")]);
    }
    roff
}
