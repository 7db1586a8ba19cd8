//! A document as the page reads it: a tree of YAML, with references followed.

use crate::text;
use std::error::Error;
use yaml_rust2::{Yaml, YamlLoader};

/// A document, and what it is called on the page.
pub(crate) struct Document {
    /// `openapi` or `openrpc`.
    pub(crate) folder: &'static str,
    /// The surface that it is of.
    pub(crate) name: &'static str,
    /// All of it.
    pub(crate) root: Yaml,
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// It is no YAML, or a reference in it leads nowhere.
    pub(crate) fn read(
        folder: &'static str,
        name: &'static str,
        text: &str,
    ) -> Result<Self, Box<dyn Error>> {
        let root = YamlLoader::load_from_str(text)?.into_iter().next().ok_or("it is empty")?;
        let document = Self { folder, name, root };
        match document.broken(&document.root) {
            Some(broken) => Err(format!("{broken} leads nowhere").into()),
            None => Ok(document),
        }
    }

    /// The first reference that leads nowhere.
    fn broken(&self, node: &Yaml) -> Option<String> {
        match node {
            Yaml::Array(items) => items.iter().find_map(|item| self.broken(item)),
            Yaml::Hash(members) => {
                let own = reference(node).filter(|to| self.at(to).is_badvalue());
                own.map(str::to_owned)
                    .or_else(|| members.values().find_map(|member| self.broken(member)))
            }
            _ => None,
        }
    }

    fn at(&self, reference: &str) -> &Yaml {
        let path = reference.trim_start_matches("#/").split('/');
        path.fold(&self.root, |node, name| &node[name])
    }

    /// The node itself, or what it refers to.
    pub(crate) fn follow<'a>(&'a self, node: &'a Yaml) -> &'a Yaml {
        reference(node).map_or(node, |to| self.at(to))
    }

    /// An anchor of the page, of these words.
    pub(crate) fn anchor(&self, words: &[&str]) -> String {
        let words = [&[self.folder, self.name], words].concat();
        text::anchor(&words.join("-"))
    }

    /// The anchor of a schema.
    pub(crate) fn schema_anchor(&self, name: &str) -> String {
        self.anchor(&["schema", name])
    }
}

/// What a node refers to, if it does.
pub(crate) fn reference(node: &Yaml) -> Option<&str> {
    node["$ref"].as_str().filter(|to| to.starts_with("#/"))
}

/// The members of an object, in order; none for anything else.
pub(crate) fn members(node: &Yaml) -> impl Iterator<Item = (&str, &Yaml)> {
    node.as_hash()
        .into_iter()
        .flatten()
        .filter_map(|(name, member)| name.as_str().map(|name| (name, member)))
}

/// The items of an array; none for anything else.
pub(crate) fn items(node: &Yaml) -> &[Yaml] {
    node.as_vec().map_or(&[], Vec::as_slice)
}

/// A text, or an empty one.
pub(crate) fn string<'a>(node: &'a Yaml, name: &str) -> &'a str {
    node[name].as_str().unwrap_or_default()
}
