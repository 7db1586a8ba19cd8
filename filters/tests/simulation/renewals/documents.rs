//! Documents with one field that is missing, wrong, huge or repeated.

/// A document: its fields, each with its value as JSON.
pub(super) struct Fields(Vec<(&'static str, String)>);

/// A mistake in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mutation {
    /// The field, modulo their number.
    pub(super) field: usize,
    pub(super) how: u32,
}

/// The number of ways in which a field is wrong.
pub(super) const WAYS: u32 = 12;

impl Fields {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a text.
    pub(super) fn text(self, name: &'static str, value: &str) -> Self {
        self.raw(name, format!("\"{value}\""))
    }

    pub(super) fn raw(mut self, name: &'static str, value: String) -> Self {
        self.0.push((name, value));
        self
    }

    /// The document as JSON, with a mistake.
    pub(super) fn json(mut self, mutation: Option<Mutation>) -> String {
        if let Some(Mutation { field, how }) = mutation {
            let at = field % self.0.len();
            let (name, value) = self.0[at].clone();
            match how {
                0 => {
                    self.0.remove(at);
                }
                1 => self.0[at].1 = "null".to_owned(),
                2 => self.0[at].1 = "7".to_owned(),
                3 => self.0[at].1 = format!("\"{}\"", "x".repeat(9_999)),
                4 => self.0[at].1 = "\"\"".to_owned(),
                5 => self.0.push((name, value)),
                6 => self.0.push((name, "\"other\"".to_owned())),
                7 => self.0[at].1 = format!("[{}]", vec!["\"https://a.test/\""; 999].join(",")),
                8 => self.0[at].1 = "{}".to_owned(),
                9 => self.0[at].1 = value.replace("https:", "http:"),
                10 => self.0[at].1 = "\"a\\u0000\\n\\u202eb\"".to_owned(),
                _ => self.0[at].1 = "1e999".to_owned(),
            }
        }
        let fields = self.0.iter();
        let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }
}
