//! The help of every command, and its examples, against the definitions of the command line.

use clap::Command;
use portcullis::cli::command;
use std::path::Path;

/// A command and all its subcommands, each with its path, such as `store import`.
fn tree(command: &Command, path: &str) -> Vec<(Command, String)> {
    let mut found = vec![(command.clone(), path.to_owned())];
    for below in command
        .get_subcommands()
        .filter(|below| below.get_name() != "help")
    {
        found.extend(tree(
            below,
            format!("{path} {}", below.get_name()).trim_start(),
        ));
    }
    found
}

/// The titles of the blocks below a command's help, each with its lines.
fn blocks(command: &Command) -> Vec<(String, Vec<String>)> {
    let text = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let blocks = text
        .split("\n\n")
        .filter_map(|block| block.split_once(":\n"));
    let lines = |lines: &str| lines.lines().map(str::to_owned).collect();
    blocks
        .map(|(title, text)| (title.to_owned(), lines(text)))
        .collect()
}

/// The examples of a command: each with all of its lines.
fn examples(command: &Command) -> Vec<String> {
    let blocks = blocks(command);
    let lines = blocks
        .iter()
        .find(|(title, _)| title == "Examples")
        .map(|(_, lines)| lines);
    let mut examples: Vec<String> = Vec::new();
    for line in lines.into_iter().flatten() {
        match examples.last_mut() {
            _ if line.starts_with("  # ") => examples.push(String::new()),
            Some(example) => *example += &format!("\n{line}"),
            None => panic!("{line} has no description"),
        }
    }
    examples
}

#[test]
fn the_command_line_is_well_defined() {
    command().debug_assert();
}

#[test]
fn every_command_has_examples_and_exit_codes() {
    for (command, path) in tree(&command(), "") {
        let of_its_own = |line: &str| line.contains(&format!("portcullis {path}"));
        let words = path.split(' ').collect::<Vec<_>>();
        // the options of `journal` are between its name and that of its command
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        let shown = examples(&command)
            .iter()
            .any(|line| of_its_own(line) || has_all(line));
        assert!(shown, "{path}: an example of itself");
        let blocks = blocks(&command);
        let codes = blocks.iter().find(|(title, _)| *title == "Exit codes");
        let (_, codes) = codes.unwrap_or_else(|| panic!("{path}: exit codes"));
        let code = |line: &String| line.split_whitespace().next().map(str::to_owned);
        let known = |code: String| ["0", "1", "2", "70"].contains(&&*code);
        assert!(
            codes.iter().all(|line| code(line).is_some_and(known)),
            "{path}: {codes:?}"
        );
    }
}

#[test]
fn every_example_parses() {
    for (of, path) in tree(&command(), "") {
        for line in examples(&of) {
            let start = line
                .find("portcullis ")
                .expect("an example runs the program");
            let end = [" | ", " > ", ")", "\n"].map(|end| line[start..].find(end));
            let end = end
                .into_iter()
                .flatten()
                .min()
                .map_or(line.len(), |end| start + end);
            let words: Vec<_> = line[start..end].split_whitespace().collect();
            if let Err(error) = command().try_get_matches_from(&words) {
                let is_help = error.kind() == clap::error::ErrorKind::DisplayHelp;
                assert!(is_help, "{path}: {line}: {error}");
            }
        }
    }
}

/// The commands in a document: lines of shell blocks, and inline code.
fn commands(document: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = std::fs::read_to_string(path).unwrap().replace("\\\n", " ");
    let text = text
        .replace("portcullis-with-secrets ", "portcullis ")
        .replace("```\n", "`");
    let text = text.replace("$(date +%F)", "today");
    let code = text.split('`').skip(1).step_by(2);
    let lines = code.flat_map(|code| match code.strip_prefix("sh\n") {
        Some(block) => block.lines().map(str::to_owned).collect(),
        None => vec![code.split_whitespace().collect::<Vec<_>>().join(" ")],
    });
    lines.collect()
}

#[test]
fn every_command_of_the_runbook_parses() {
    let mut found = 0;
    for document in ["conf/prometheus/RUNBOOK.md", "conf/store/README.md"] {
        for line in commands(document) {
            let Some((before, arguments)) = line.split_once("portcullis ") else {
                continue;
            };
            let is_program = !before.contains("ctl") && !arguments.contains('[');
            if !is_program || !arguments.starts_with(|first: char| first.is_ascii_lowercase()) {
                continue;
            }
            let end = arguments
                .find(['#', '|', '>', ')'])
                .unwrap_or(arguments.len());
            let words = arguments[..end].split_whitespace().map(|word| match word {
                "INTENT" => "1",
                "USER" => "did:web:a.example",
                word => word,
            });
            let words: Vec<_> = ["portcullis"].into_iter().chain(words).collect();
            let parsed = command().try_get_matches_from(&words);
            // in a sentence the arguments may be left out
            if let Err(error) = parsed {
                let is_short = error.kind() == clap::error::ErrorKind::MissingRequiredArgument;
                assert!(is_short, "{document}: {line}: {error}");
            }
            found += 1;
        }
    }
    assert!(found >= 10, "{found} commands");
}

#[test]
fn the_help_shows_examples_and_exit_codes() {
    let mut program = command();
    program.build();
    for (command, path) in tree(&program, "") {
        let (short, long) = (
            command.clone().render_help(),
            command.clone().render_long_help(),
        );
        for help in [short.to_string(), long.to_string()] {
            for example in examples(&command) {
                assert!(help.contains(&example), "{path}: {example} in {help}");
            }
            assert!(help.contains("\nExit codes:\n"), "{path}: {help}");
        }
    }
}

#[test]
fn every_option_is_explained() {
    for (command, path) in tree(&command(), "") {
        assert!(command.get_about().is_some(), "{path} says what it is for");
        for option in command.get_arguments() {
            assert!(option.get_help().is_some(), "{path} {}", option.get_id());
        }
    }
}

#[test]
fn the_runbook_works_for_each_installation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/prometheus/RUNBOOK.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (top, sections) = text
        .split_once("\n## The process\n")
        .expect("the first section");
    for word in [
        "journalctl",
        "systemctl",
        "docker",
        "kubectl",
        "127.0.0.1:8083",
    ] {
        let line = sections.lines().find(|line| line.contains(word));
        assert_eq!(
            line, None,
            "{word} is for one installation: use the commands of the top"
        );
    }
    let blocks: Vec<_> = top
        .split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next())
        .collect();
    let own = |name: &str| format!("{name}() {{");
    let defining = blocks
        .iter()
        .flatten()
        .filter(|block| block.contains(&own("log")));
    let blocks: Vec<_> = defining.collect();
    assert_eq!(blocks.len(), 3, "systemd, Docker, Kubernetes");
    for block in blocks {
        assert!(block.contains(&own("admin")), "{block}");
        let parses = std::process::Command::new("bash")
            .args(["-n", "-c", block])
            .status();
        assert!(parses.expect("bash runs").success(), "{block}");
    }
}
