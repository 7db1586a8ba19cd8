//! An operation of the relay is defined in one file, and the recipe of CONTRIBUTING for a new one
//! names every other file that has a part of each.

use crate::code::SOURCES;
use crate::{assert_none, read, root};

/// The folder of the operations; `mod.rs` there has a row for each.
const FOLDER: &str = "filters/src/operations/";
/// The only other places of the program that name one.
const NAMED_ELSEWHERE: [(&str, &str); 2] = [
    // it binds an identity, and has a budget
    ("filters/src/ledger/mod.rs", "FaucetDrip"),
    // the end of a recovery looks for its proposal
    ("filters/src/txm/operation/repeat.rs", "RecoveryPropose"),
];

/// A row of the list.
struct Operation {
    /// The name of its file.
    module: String,
    /// The type that defines it.
    kind: String,
    /// Its path without the slash.
    name: String,
}

/// The part of an operation that a file has.
#[derive(Clone, Copy)]
enum Part {
    Path,
    Type,
}

fn operations() -> Vec<Operation> {
    let text = read(&root().join(FOLDER).join("mod.rs"));
    let (_, rows) = text
        .split_once("\noperations! {\n")
        .expect("the list of operations");
    let rows = rows.split("\n}").next().unwrap_or_default();
    let operation = |row: &str| {
        let (path, name) = row.trim().split_once(" = ")?;
        let (module, kind) = path.split_once("::")?;
        let name = name.trim_matches(['"', ',']);
        Some(Operation {
            module: module.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        })
    };
    let found: Vec<Operation> = rows.lines().filter_map(operation).collect();
    assert_eq!(found.len(), rows.lines().count(), "each row is read");
    found
}

#[test]
fn an_operation_is_defined_in_its_own_file() {
    let operations = operations();
    let mut wrong = Vec::new();
    for Operation { module, kind, name } in &operations {
        let file = format!("{FOLDER}{module}.rs");
        if name.replace('-', "_") != *module || !root().join(&file).exists() {
            wrong.push(format!("/{name} has no {file}"));
        } else if !read(&root().join(&file)).contains(&format!("impl Definition for {kind} {{")) {
            wrong.push(format!("{file} does not define {kind}"));
        }
    }
    for source in SOURCES.iter() {
        if !source.is_of_program() || source.name.starts_with(FOLDER) {
            continue;
        }
        for Operation { kind, .. } in &operations {
            let is_known = NAMED_ELSEWHERE.contains(&(source.name.as_str(), kind.as_str()));
            if !is_known && source.program.iter().any(|token| token.text == *kind) {
                wrong.push(format!("{} knows {kind}", source.name));
            }
        }
    }
    assert_none("what is true of an operation stands in its file", &wrong);
}

#[test]
fn the_recipe_of_an_operation_names_its_files() {
    let contributing = read(&root().join("CONTRIBUTING.md"));
    let (_, recipe) = contributing
        .split_once("- **An operation**")
        .expect("a recipe for an operation");
    let recipe = recipe.split("\n- **").next().unwrap_or_default();
    let parts = [
        ("conf/openapi/relay.yaml", Part::Path),
        ("conf/interfaces.md", Part::Path),
        ("filters/tests/relay/operations.rs", Part::Type),
        ("tests/it/relay/walk.rs", Part::Type),
        ("filters/tests/simulation/writes/requests.rs", Part::Type),
        ("filters/tests/simulation/writes/conflicts.rs", Part::Type),
    ];
    let mut wrong = Vec::new();
    for (file, part) in parts {
        if !recipe.contains(&format!("`{file}`")) {
            wrong.push(format!("the recipe does not name {file}"));
        }
        let text = read(&root().join(file));
        for operation in operations() {
            let part = match part {
                Part::Path => format!("/{}", operation.name),
                Part::Type => format!("::{}", operation.kind),
            };
            if !text.contains(&part) {
                wrong.push(format!("{file} lacks {part}"));
            }
        }
    }
    assert_none("who follows the recipe has a whole operation", &wrong);
}
