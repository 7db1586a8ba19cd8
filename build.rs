//! The build script: converts the API documents in `conf/` from YAML to JSON, members in order.

use std::error::Error;
use std::path::Path;
use std::{env, fs};
use yaml_rust2::{Yaml, YamlLoader};

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    for folder in ["openapi", "openrpc"] {
        println!("cargo::rerun-if-changed=conf/{folder}");
        for entry in fs::read_dir(Path::new("conf").join(folder))? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().display();
            let documents = YamlLoader::load_from_str(&fs::read_to_string(&path)?)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let json: String = documents.iter().map(json).collect();
            fs::write(Path::new(&out).join(format!("{folder}-{name}.json")), json)?;
        }
    }
    Ok(())
}

fn json(node: &Yaml) -> String {
    match node {
        Yaml::String(text) => string(text),
        Yaml::Integer(number) => number.to_string(),
        Yaml::Real(number) => number.clone(),
        Yaml::Boolean(value) => value.to_string(),
        Yaml::Array(items) => {
            format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(", "))
        }
        Yaml::Hash(members) => {
            let members = members.iter().map(|(name, member)| {
                format!("{}: {}", string(name.as_str().unwrap_or_default()), json(member))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Yaml::Null | Yaml::Alias(_) | Yaml::BadValue => "null".to_owned(),
    }
}

/// A string with the escapes of RFC 8259, section 7.
fn string(text: &str) -> String {
    let escaped = text.chars().map(|character| match character {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        control if control < ' ' => format!("\\u{:04x}", u32::from(control)),
        plain => plain.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
