//! Statements for many lists of arguments at once, for PostgreSQL: one round trip instead of one
//! per list.
//!
//! Each is derived from the statement for one list: its parameters become columns of a table that
//! has a row per list. So both forms have one text, and PostgreSQL prepares it once for any number
//! of lists.

use super::row::Arg;
use std::fmt::Write as _;

/// The arguments of one parameter, one per list.
#[derive(Debug)]
pub(super) enum Column<'a> {
    Texts(Vec<Option<&'a str>>),
    Ints(Vec<Option<i64>>),
}

/// The column with the number of the list, from 1, in the rows of [`query`].
pub(super) const NUMBER: &str = "list_number";

/// The columns of lists of equal length.
pub(super) fn columns<'a>(lists: &'a [Vec<Arg<'_>>]) -> Vec<Column<'a>> {
    let length = lists.first().map_or(0, Vec::len);
    debug_assert!(
        lists.iter().all(|list| list.len() == length),
        "each list has an argument per parameter"
    );
    (0..length).map(|at| column(lists, at)).collect()
}

fn column<'a>(lists: &'a [Vec<Arg<'_>>], at: usize) -> Column<'a> {
    let args = || lists.iter().filter_map(move |list| list.get(at));
    if args().any(|arg| matches!(arg, Arg::Int(_))) {
        return Column::Ints(args().map(Arg::as_int).collect());
    }
    Column::Texts(args().map(Arg::as_text).collect())
}

/// A query for each list; its rows have the [`NUMBER`] of their list.
pub(super) fn query(sql: &str, columns: &[Column<'_>]) -> String {
    let table = table(columns);
    let sql = with_columns(sql);
    format!("SELECT found.*, each.{NUMBER} FROM {table} CROSS JOIN LATERAL ({sql}) AS found")
}

/// `INSERT … VALUES (…)`, or `UPDATE … WHERE …`, for each list.
pub(super) fn change(sql: &str, columns: &[Column<'_>]) -> String {
    let table = table(columns);
    let sql = with_columns(sql);
    if let Some((head, values)) = sql.split_once("VALUES (")
        && let Some((values, rest)) = values.split_once(')')
    {
        return format!("{head}SELECT {values} FROM {table}{rest}");
    }
    match sql.split_once(" WHERE ") {
        Some((head, condition)) => format!("{head} FROM {table} WHERE {condition}"),
        None => sql,
    }
}

/// The table of the arguments: a row per list.
fn table(columns: &[Column<'_>]) -> String {
    let mut arrays = String::new();
    let mut names = String::new();
    for (number, column) in (1..).zip(columns) {
        let of = match column {
            Column::Texts(_) => "text",
            Column::Ints(_) => "bigint",
        };
        // writing to a string never fails
        let _ = write!(arrays, "{}${number}::{of}[]", comma(&arrays));
        let _ = write!(names, "a{number}, ");
    }
    format!("unnest({arrays}) WITH ORDINALITY AS each ({names}{NUMBER})")
}

fn comma(before: &str) -> &'static str {
    if before.is_empty() { "" } else { ", " }
}

/// The statement with the columns of [`table`] instead of its parameters.
fn with_columns(sql: &str) -> String {
    sql.replace('$', "each.a")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql;

    fn columns_of(texts: usize) -> Vec<Column<'static>> {
        (0..texts).map(|_| Column::Texts(Vec::new())).collect()
    }

    #[test]
    fn each_list_has_its_own_column() {
        let lists = [
            vec!["a".into(), Arg::Int(None), Arg::Text(None)],
            vec![Arg::Text(None), 7.into(), Arg::Text(None)],
        ];
        let columns = format!("{:?}", columns(&lists));
        let expected = r#"[Texts([Some("a"), None]), Ints([None, Some(7)]), Texts([None, None])]"#;
        assert_eq!(columns, expected);
    }

    #[test]
    fn a_query_runs_once_for_each_list() {
        let sql = query("SELECT a FROM t WHERE b = $1 LIMIT $2", &columns_of(2));
        let table = "unnest($1::text[], $2::text[]) WITH ORDINALITY AS each (a1, a2, list_number)";
        let expected = format!(
            "SELECT found.*, each.list_number FROM {table} CROSS JOIN LATERAL \
             (SELECT a FROM t WHERE b = each.a1 LIMIT each.a2) AS found"
        );
        assert_eq!(sql, expected);
    }

    #[test]
    fn a_change_runs_once_for_each_list() {
        let table = "unnest($1::text[], $2::text[]) WITH ORDINALITY AS each (a1, a2, list_number)";
        let insert = "INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = $2";
        let expected = format!(
            "INSERT INTO t (a, b) SELECT each.a1, each.a2 FROM {table} \
             ON CONFLICT (a) DO UPDATE SET b = each.a2"
        );
        assert_eq!(change(insert, &columns_of(2)), expected);
        let update = "UPDATE t SET a = $2 WHERE b = $1";
        let expected = format!("UPDATE t SET a = each.a2 FROM {table} WHERE b = each.a1");
        assert_eq!(change(update, &columns_of(2)), expected);
    }

    #[test]
    fn values_of_an_insert_have_no_parentheses() {
        for insert in [sql::INTENT_ADD, sql::ENTRY_ADD, sql::KEY_LINK] {
            let (_, values) = insert.split_once("VALUES (").expect("it is an insert");
            let (values, _) = values.split_once(')').expect("it is closed");
            assert!(!values.contains('('), "{values}");
        }
    }
}
