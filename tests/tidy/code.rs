//! Rust sources as tokens, which a formatter can neither squeeze nor stretch: those of a file, of
//! its inline tests, and of each function. Comments and documentation are left out; an operator, a
//! lifetime and each bracket is one token.

use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

use crate::{CRATES, read, shown, sources};

/// Operators of several characters. `>>` is missing, because it mostly closes two lists of types.
const OPERATORS: [&str; 22] = [
    "->", "=>", "::", "==", "!=", "<=", ">=", "&&", "||", "..", "..=", "...", "+=", "-=", "*=",
    "/=", "%=", "^=", "&=", "|=", "<<", "<<=",
];

/// A token, and the line where it begins.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Token {
    fn new(text: &str, span: Span) -> Self {
        Self {
            text: text.to_owned(),
            line: span.start().line,
        }
    }
}

/// A function with a body.
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: usize,
    pub(crate) parameters: Vec<&'a [Token]>,
    /// The number of tokens from `fn` to the closing brace.
    pub(crate) size: usize,
}

/// A source file. Its tests count apart from its program.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    /// All tokens.
    pub(crate) all: Vec<Token>,
    /// The tokens outside inline tests. A file of tests has none.
    pub(crate) program: Vec<Token>,
}

/// The sources of the repository.
pub(crate) static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let paths = sources();
    paths.iter().map(|path| source(path)).collect()
});

fn source(path: &Path) -> Source {
    let text = read(path);
    let name = shown(path);
    let all = tokens(&text);
    let program = if is_of_tests(&name) {
        Vec::new()
    } else {
        without_tests(&all)
    };
    Source {
        name,
        text,
        all,
        program,
    }
}

fn is_of_tests(name: &str) -> bool {
    name.starts_with("tests/")
        || ["/tests/", "/tests.rs", "/simulation/"]
            .iter()
            .any(|part| name.contains(part))
}

impl Source {
    /// Whether it belongs to the program, with its tests.
    pub(crate) fn is_of_program(&self) -> bool {
        let is_of = |name: &str| self.name.starts_with(&format!("{name}/src/"));
        self.name.starts_with("src/") || CRATES.into_iter().any(is_of)
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let stream: TokenStream = text.parse().expect("a source consists of tokens");
    let mut code = Vec::new();
    flatten(stream, &mut code);
    code
}

fn flatten(stream: TokenStream, code: &mut Vec<Token>) {
    let mut is_joint = false;
    for tree in stream {
        match &tree {
            TokenTree::Group(group) => {
                flatten_group(group, code);
                remove_documentation(code);
            }
            other => push(other, is_joint, code),
        }
        is_joint = matches!(&tree, TokenTree::Punct(punct) if punct.spacing() == Spacing::Joint);
    }
}

fn flatten_group(group: &Group, code: &mut Vec<Token>) {
    let brackets = match group.delimiter() {
        Delimiter::Parenthesis => ["(", ")"],
        Delimiter::Bracket => ["[", "]"],
        Delimiter::Brace => ["{", "}"],
        Delimiter::None => return flatten(group.stream(), code),
    };
    let [open, close] = brackets;
    code.push(Token::new(open, group.span_open()));
    flatten(group.stream(), code);
    code.push(Token::new(close, group.span_close()));
}

/// Appends a token, or completes the one before if both are one to the compiler.
fn push(tree: &TokenTree, is_joint: bool, code: &mut Vec<Token>) {
    let text = tree.to_string();
    if let Some(last) = code.last_mut()
        && is_joint
        && (last.text == "'" || OPERATORS.contains(&format!("{}{text}", last.text).as_str()))
    {
        last.text.push_str(&text);
        return;
    }
    code.push(Token::new(&text, tree.span()));
}

/// Removes an attribute of documentation from the end: doc comments are tokenized as these.
fn remove_documentation(code: &mut Vec<Token>) {
    for length in [6, 7] {
        let start = code.len().saturating_sub(length);
        if matches!(
            texts(&code[start..])[..],
            ["#", "[", "doc", "=", _, "]"] | ["#", "!", "[", "doc", "=", _, "]"]
        ) {
            code.truncate(start);
        }
    }
}

/// The texts of tokens, to compare with a pattern.
pub(crate) fn texts(code: &[Token]) -> Vec<&str> {
    code.iter().map(|token| token.text.as_str()).collect()
}

/// Whether tokens begin with those of a pattern.
pub(crate) fn starts_with(code: &[Token], pattern: &[&str]) -> bool {
    let head = code.iter().take(pattern.len());
    head.map(|token| token.text.as_str())
        .eq(pattern.iter().copied())
}

/// The number of tokens from an opening bracket, which is the first, to its closing one.
pub(crate) fn bracketed(code: &[Token]) -> usize {
    let mut depth = 0;
    for (at, token) in code.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The number of tokens up to the first of `ends` outside brackets, including that one.
pub(crate) fn until(ends: &[&str], code: &[Token]) -> usize {
    let mut at = 0;
    while let Some(token) = code.get(at) {
        at += match token.text.as_str() {
            text if ends.contains(&text) => return at + 1,
            "(" | "[" | "{" => bracketed(&code[at..]),
            ")" | "]" | "}" => return at,
            _ => 1,
        };
    }
    at
}

/// `code` without its inline tests.
fn without_tests(code: &[Token]) -> Vec<Token> {
    let mut rest = code;
    let mut kept = Vec::new();
    while let Some(token) = rest.first() {
        let length = test_item(rest);
        if length == 0 {
            kept.push(token.clone());
            rest = &rest[1..];
        } else {
            rest = &rest[length..];
        }
    }
    kept
}

/// The length of the item at the beginning of `code` if it is compiled for tests only.
fn test_item(code: &[Token]) -> usize {
    let is_test = starts_with(code, &["#", "[", "cfg", "(", "test"])
        || starts_with(code, &["#", "[", "cfg", "(", "all", "(", "test"]);
    if !is_test {
        return 0;
    }
    let attribute = 1 + bracketed(&code[1..]);
    let mut end = attribute + until(&["{", ";"], &code[attribute..]);
    if code[end - 1].text == "{" {
        end += bracketed(&code[end - 1..]) - 1;
    }
    // of `use name::{…};`
    if code.get(end).is_some_and(|token| token.text == ";") {
        end += 1;
    }
    end
}

/// The functions of `code`, also those within another.
pub(crate) fn functions(code: &[Token]) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    for (at, pair) in code.windows(2).enumerate() {
        if pair[0].text == "fn" {
            found.extend(function(&code[at..]));
        }
    }
    found
}

/// The function at the beginning of `code`, unless it is a type or has no body.
fn function(code: &[Token]) -> Option<Function<'_>> {
    let mut depth = 0;
    let open = code.iter().position(|token| {
        match token.text.as_str() {
            "<" => depth += 1,
            ">" => depth -= 1,
            _ => {}
        }
        token.text == "(" && depth == 0
    })?;
    let close = open + bracketed(&code[open..]);
    let body = close + until(&["{", ";"], &code[close..]) - 1;
    if open < 2 || !starts_with(&code[body..], &["{"]) {
        return None;
    }
    Some(Function {
        name: &code[1].text,
        line: code[0].line,
        parameters: items(&code[open + 1..close - 1]),
        size: body + bracketed(&code[body..]),
    })
}

/// The items of a list that commas separate.
pub(crate) fn items(list: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0;
    let mut items: Vec<_> = list
        .split(|token| {
            match token.text.as_str() {
                "(" | "[" | "{" | "<" => depth += 1,
                ")" | "]" | "}" | ">" => depth -= 1,
                _ => {}
            }
            token.text == "," && depth == 0
        })
        .collect();
    items.retain(|item| !item.is_empty());
    items
}

#[test]
fn functions_are_measured_without_comments_and_tests() {
    let all = tokens(
        "//! Doc
        impl<F: Fn(u8) -> Vec<Vec<u8>>> Of<'_, F> {
            /// Doc
            fn first<T: Fn(u8) -> u8>(&self, (a, b): (u8, u8), map: Map<u8, T>) -> [u8; 2] {
                [a, b] // comment
            }
        }
        #[cfg(test)]
        use std::{fmt, io};
        fn second(call: fn(u8) -> bool) { if call(0) && true {} }
        #[cfg(all(test, unix))]
        mod tests { fn third() {} }
        trait Bodiless { fn fourth(&self); }",
    );
    let program = without_tests(&all);
    assert_eq!(functions(&all).len(), 3);
    let [first, second] = &functions(&program)[..] else {
        panic!("the program has two functions");
    };
    assert_eq!(
        texts(first.parameters[1]),
        ["(", "a", ",", "b", ")", ":", "(", "u8", ",", "u8", ")"]
    );
    assert_eq!([first.name, second.name], ["first", "second"]);
    assert_eq!([first.line, second.line], [4, 10]);
    assert_eq!([first.parameters.len(), second.parameters.len()], [3, 1]);
    assert_eq!([first.size, second.size], [50, 23]);
}
