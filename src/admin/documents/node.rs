//! A JSON value whose members keep their order, which a page follows and `serde_json` does not.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Number;
use std::fmt;
use std::ops::Index;

/// A value, or the absence of one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Node {
    #[serde(skip)]
    Absent,
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Self>),
    Object(Members),
}

#[derive(Clone, Debug)]
pub(super) struct Members(pub(super) Vec<(String, Node)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(InOrder)
    }
}

impl Index<&str> for Node {
    type Output = Self;

    fn index(&self, name: &str) -> &Self {
        self.members().find(|(member, _)| *member == name).map_or(&Self::Absent, |(_, node)| node)
    }
}

impl From<&str> for Node {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl Node {
    /// The members of an object, in order; empty for anything else.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let members = if let Self::Object(Members(members)) = self { &members[..] } else { &[] };
        members.iter().map(|(name, node)| (name.as_str(), node))
    }

    /// The items of an array; empty for anything else.
    pub(super) fn items(&self) -> &[Self] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The text of a string, or an empty one.
    pub(super) fn text(&self) -> &str {
        self.as_str().unwrap_or_default()
    }

    pub(super) fn as_i64(&self) -> Option<i64> {
        if let Self::Number(number) = self { number.as_i64() } else { None }
    }

    pub(super) fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// The value as JSON on one line.
    pub(super) fn json(&self) -> String {
        let mut out = String::new();
        self.write(None, &mut out);
        out
    }

    /// The value as JSON for people: a member or an item on each line, except where an array or
    /// object is short.
    pub(super) fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(Some(0), &mut out);
        out
    }

    fn write(&self, indent: Option<usize>, out: &mut String) {
        match self {
            Self::Absent | Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(&value.to_string()),
            Self::Number(number) => out.push_str(&number.to_string()),
            Self::String(text) => out.push_str(&quoted(text)),
            Self::Array(items) => {
                self.write_list(['[', ']'], items.iter().map(|item| (None, item)), indent, out);
            }
            Self::Object(_) => {
                let members = self.members().map(|(name, member)| (Some(name), member));
                self.write_list(['{', '}'], members, indent, out);
            }
        }
    }

    fn write_list<'a>(
        &self,
        [open, close]: [char; 2],
        members: impl Iterator<Item = (Option<&'a str>, &'a Self)>,
        indent: Option<usize>,
        out: &mut String,
    ) {
        /// Columns of an array or object that stays on one line.
        const SHORT: usize = 76;
        let outer = indent.filter(|indent| indent + self.json().len() > SHORT);
        let line = |extra: usize| {
            outer.map(|indent| format!("\n{}", " ".repeat(indent + extra))).unwrap_or_default()
        };
        let comma = if outer.is_some() { "," } else { ", " };
        out.push(open);
        for (at, (name, member)) in members.enumerate() {
            out.push_str(if at > 0 { comma } else { "" });
            out.push_str(&line(2));
            if let Some(name) = name {
                out.push_str(&format!("{}: ", quoted(name)));
            }
            member.write(outer.map(|indent| indent + 2), out);
        }
        out.push_str(&line(0));
        out.push(close);
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
