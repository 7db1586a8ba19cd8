//! The configuration that is used, as a file: the values of all sections that are on, each with the
//! place where it is set.

use std::fmt::Write as _;

use super::error::Origin;
use super::registry::KEYS;

/// A value that is used.
#[derive(Debug)]
pub(super) struct Setting {
    /// The path of the key's section.
    pub(super) section: &'static str,
    /// The key's name in its section.
    pub(super) name: &'static str,
    /// The value as a TOML literal. The URLs of a node or a collector are without their paths.
    pub(super) value: String,
    /// Where it is set.
    pub(super) origin: Origin,
}

/// All settings, in the order of the example file, and the sections that are off.
pub(super) fn file(settings: &[Setting], hash: u64) -> String {
    let mut text = format!("# portcullis_config_hash {hash}\n");
    let mut section = "";
    for setting in settings {
        if setting.section != section {
            section = setting.section;
            // writing to a String does not fail
            let _ = write!(text, "\n[{section}]\n");
        }
        let Setting { name, value, .. } = setting;
        let _ = writeln!(text, "{name} = {value}  # {}", origin(&setting.origin));
    }
    let off: Vec<_> = KEYS
        .sections()
        .filter(|section| settings.iter().all(|it| it.section != *section))
        .collect();
    if !off.is_empty() {
        let _ = write!(text, "\n# off: {}\n", off.join(", "));
    }
    text
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::File { line, .. } => format!("line {line}"),
        Origin::Variable(name) => name.clone(),
        Origin::Absent => "default".to_owned(),
    }
}
