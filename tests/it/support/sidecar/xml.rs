//! A parser for the documents of the sidecar, which accepts well-formed ones only.

use quick_xml::Reader;
use quick_xml::escape::{resolve_xml_entity, unescape};
use quick_xml::events::{BytesStart, Event};

/// A parsed element.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) text: String,
    pub(crate) children: Vec<Self>,
}

impl Node {
    /// The children with a name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The only child with a name.
    pub(crate) fn one(&self, name: &str) -> &Self {
        let found: Vec<_> = self.all(name).collect();
        assert_eq!(found.len(), 1, "one {name} in {}", self.name);
        found[0]
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Parses a well-formed document to its root.
pub(crate) fn read(document: &[u8]) -> Node {
    let text = std::str::from_utf8(document).expect("a document is UTF-8");
    assert!(
        text.chars().all(is_legal),
        "a document has legal characters only"
    );
    let mut reader = Reader::from_str(text);
    let mut open = vec![Node::default()];
    loop {
        let event = reader.read_event().expect("a document is well-formed");
        match event {
            Event::Start(start) => open.push(node(&start)),
            Event::Empty(start) => open.last_mut().unwrap().children.push(node(&start)),
            Event::End(_) => {
                let node = open.pop().unwrap();
                open.last_mut().unwrap().children.push(node);
            }
            Event::Text(text) => open.last_mut().unwrap().text.push_str(&text.into_inner()),
            Event::CData(text) => open.last_mut().unwrap().text.push_str(&text.into_inner()),
            Event::GeneralRef(name) => {
                let name = name.into_inner();
                let known = name.starts_with('#') || resolve_xml_entity(&name).is_some();
                assert!(known, "XML itself knows no &{name};");
                let text = unescape(&format!("&{name};")).unwrap().into_owned();
                open.last_mut().unwrap().text.push_str(&text);
            }
            Event::Eof => break,
            Event::Decl(_) => {}
            other => panic!("nothing else is written: {other:?}"),
        }
    }
    assert_eq!(open.len(), 1, "all is closed");
    open.pop()
        .unwrap()
        .children
        .pop()
        .expect("a document has a root")
}

fn node(start: &BytesStart<'_>) -> Node {
    let attributes = start.attributes().map(|attribute| {
        let attribute = attribute.expect("an attribute is well-formed and there once");
        let value = unescape(&attribute.value).unwrap().into_owned();
        (attribute.key.as_ref().to_owned(), value)
    });
    let (name, attributes) = (start.name().as_ref().to_owned(), attributes.collect());
    Node {
        name,
        attributes,
        ..Node::default()
    }
}

/// XML 1.0, section 2.2, `Char`.
fn is_legal(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}
