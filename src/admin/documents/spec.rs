//! A parsed document, with its references resolved.

use super::node::Node;
use super::text;

/// A document, and what identifies it on the page.
pub(super) struct Spec {
    /// `openapi` or `openrpc`.
    pub(super) folder: &'static str,
    /// The surface that it describes.
    pub(super) name: &'static str,
    /// All of it.
    pub(super) root: Node,
}

impl Spec {
    /// The target of a reference; absent if it leads nowhere.
    pub(super) fn at(&self, reference: &str) -> &Node {
        let path = reference.trim_start_matches("#/").split('/');
        path.fold(&self.root, |node, name| &node[name])
    }

    /// The node itself, or what it refers to.
    pub(super) fn follow<'a>(&'a self, node: &'a Node) -> &'a Node {
        reference(node).map_or(node, |to| self.at(to))
    }

    /// An anchor of the page, made of these words.
    pub(super) fn anchor(&self, words: &[&str]) -> String {
        let words = [&[self.folder, self.name], words].concat();
        text::anchor(&words.join("-"))
    }

    pub(super) fn schema_anchor(&self, name: &str) -> String {
        self.anchor(&["schema", name])
    }
}

/// What a node refers to, if it does.
pub(super) fn reference(node: &Node) -> Option<&str> {
    node["$ref"].as_str().filter(|to| to.starts_with("#/"))
}
