//! The table of the contract of `Io` names every method, and the cases that prove it.

use crate::contract::{cases, shared_cases};
use std::collections::BTreeSet;

const TRAITS: &str = include_str!("../../src/txm/io.rs");
const TABLE: &str = include_str!("../../src/txm/contract.md");

macro_rules! names {
    ($($module:ident: $($case:ident)*;)*) => { [$($(stringify!($case)),*),*] };
}

/// The text between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The methods of the traits, in order.
fn methods() -> Vec<&'static str> {
    let names = TRAITS
        .lines()
        .filter_map(|line| line.strip_prefix("    fn "));
    names
        .filter_map(|line| line.split(['(', '<']).next())
        .collect()
}

/// Method, promise and cases of each row.
fn rows() -> Vec<[&'static str; 3]> {
    let rows = TABLE.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        cells.try_into().expect("a row has three cells")
    });
    cells.collect()
}

#[test]
fn every_method_has_its_row() {
    let of_table: Vec<_> = rows()
        .iter()
        .flat_map(|[method, ..]| quoted(method))
        .collect();
    assert_eq!(of_table, methods());
    for [method, promise, _] in rows() {
        assert!(promise.ends_with('.'), "{method} promises something");
    }
}

#[test]
fn every_row_names_a_case_that_runs() {
    let everywhere: [&str; _] = cases!(names);
    let run: BTreeSet<_> = everywhere.into_iter().chain(shared_cases!(names)).collect();
    let named: BTreeSet<_> = rows()
        .iter()
        .flat_map(|[.., cases]| quoted(cases))
        .collect();
    assert_eq!(named, run);
    for [method, _, cases] in rows() {
        assert!(quoted(cases).count() > 0, "{method} is proved");
    }
}
