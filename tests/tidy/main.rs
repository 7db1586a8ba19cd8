//! Repository rules, enforced: module layers, the dependencies of the policy crate, what a build
//! needs, module docs, and that every metric, file, link and key named in a document exists. `code`
//! divides sources into tokens; `sizes`, `signatures` and `habits` are the rules of style;
//! `operations` are those of the relay's operations.

mod code;
mod habits;
mod operations;
mod signatures;
mod sizes;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum lines of a module's own documentation.
const MAX_MODULE_DOC: usize = 12;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_under(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the tree can be read") {
            let path = entry.expect("an entry can be read").path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if path.is_dir() && !matches!(name, "target" | "node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder} holds .{extension} files");
    found
}

/// The sources of the program, without its tests.
fn program_sources() -> Vec<PathBuf> {
    let crates = CRATES.map(|name| format!("{name}/src"));
    crates
        .iter()
        .map(String::as_str)
        .chain(["src"])
        .flat_map(|folder| files_under(folder, "rs"))
        .collect()
}

fn sources() -> Vec<PathBuf> {
    let others = ["patches", "tests", "benches"]
        .into_iter()
        .flat_map(|folder| files_under(folder, "rs"));
    program_sources().into_iter().chain(others).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file of the tree is text")
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Fails with every violation, not the first one only.
fn assert_none(rule: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{rule}:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_module_has_a_short_doc() {
    let mut wrong = Vec::new();
    for path in sources() {
        let doc = read(&path)
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .count();
        let limit = if path.ends_with("src/lib.rs") {
            2 * MAX_MODULE_DOC
        } else {
            MAX_MODULE_DOC
        };
        if doc == 0 || doc > limit {
            wrong.push(format!("{}: {doc} lines of module doc", shown(&path)));
        }
    }
    assert_none("a module begins with 1 to 12 lines of //!", &wrong);
}

/// The crates of the program. The compiler refuses a cycle between them.
const CRATES: [&str; 8] = [
    "acme",
    "base",
    "dev",
    "documents",
    "edge",
    "filters",
    "program",
    "store",
];

/// The modules of a crate with several, each with its layer from the bottom up. A module imports
/// lower layers only, so there is no cycle; a module that is missing here fails the test.
const FLOORS: [(&str, &str, u8); 16] = [
    ("base", "secrets", 0),
    ("base", "io", 0),
    ("base", "config", 1),
    ("base", "fetch", 1),
    ("base", "telemetry", 2),
    ("edge", "fleet", 0),
    ("edge", "node", 0),
    ("edge", "reply", 1),
    ("edge", "http", 2),
    ("edge", "gateway", 3),
    ("edge", "relay", 3),
    ("edge", "sidecar", 3),
    ("edge", "proxy", 4),
    ("program", "command", 0),
    ("program", "admin", 1),
    ("program", "process", 2),
];

/// The crates whose modules have floors.
const LAYERED: [&str; 3] = ["base", "edge", "program"];

fn floor(of: &str, module: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(krate, name, _)| *krate == of && *name == module)
        .map(|(_, _, floor)| *floor)
}

/// The modules that a line names by their path from the root: `crate::name` and `crate::{name, …}`.
fn imported(text: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for path in text.split("crate::").skip(1) {
        let Some(group) = path.strip_prefix('{') else {
            found.push(
                path.split(|c| !is_name(c))
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            );
            continue;
        };
        let mut depth = 0;
        let mut name = String::new();
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => found.push(std::mem::take(&mut name)),
                c if depth == 0 => name.push(c),
                _ => {}
            }
        }
        found.push(name);
    }
    let first = |path: &String| path.trim().split(|c| !is_name(c)).next().map(str::to_owned);
    found
        .iter()
        .filter_map(first)
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn modules_import_lower_floors_only() {
    let mut wrong = Vec::new();
    for krate in LAYERED {
        for path in files_under(&format!("{krate}/src"), "rs") {
            let name = shown(&path);
            let place = name.trim_start_matches(krate).trim_start_matches("/src/");
            let Some((module, _)) = place.split_once('/') else {
                continue;
            };
            let Some(own) = floor(krate, module) else {
                wrong.push(format!("{krate}: {module} has no floor"));
                continue;
            };
            let text = read(&path);
            let code: String = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            for import in imported(&code) {
                match floor(krate, &import) {
                    _ if import == module => {}
                    // a constant of the crate
                    None if import.chars().all(|c| c.is_ascii_uppercase()) => {}
                    Some(floor) if floor < own => {}
                    Some(floor) => wrong.push(format!("{name} (floor {own}): {import} ({floor})")),
                    None => wrong.push(format!("{name}: crate::{import} has no floor")),
                }
            }
        }
    }
    assert_none("a module imports lower floors only", &wrong);
}

#[test]
fn the_list_of_floors_is_the_tree() {
    for krate in LAYERED {
        let tree: BTreeSet<String> = fs::read_dir(root().join(krate).join("src"))
            .expect("a folder of the tree can be read")
            .map(|entry| {
                entry
                    .expect("an entry can be read")
                    .file_name()
                    .display()
                    .to_string()
            })
            .filter(|name| name != "lib.rs")
            .collect();
        let listed: BTreeSet<String> = FLOORS
            .iter()
            .filter(|(of, _, _)| *of == krate)
            .map(|(_, name, _)| (*name).to_owned())
            .collect();
        assert_eq!(
            tree, listed,
            "{krate}/src/ holds lib.rs, and the folders that have a floor"
        );
    }
}

#[test]
fn a_module_with_parts_is_a_folder() {
    let is_doubled = |path: &PathBuf| path.with_extension("").is_dir();
    let wrong: Vec<String> = sources()
        .into_iter()
        .filter(is_doubled)
        .map(|path| shown(&path))
        .collect();
    assert_none("write name/mod.rs, not name.rs next to name/", &wrong);
}

/// Permitted dependencies of the policy crate: data structures, locks, parsers and arithmetic,
/// without sockets, files, clocks or randomness.
#[test]
fn the_policy_crate_depends_on_pure_crates_only() {
    let manifest = read(&root().join("filters/Cargo.toml"));
    let table: toml::Table = manifest.parse().expect("a manifest is TOML");
    let names = |section: &str| -> BTreeSet<String> {
        let section = table.get(section).and_then(toml::Value::as_table);
        section
            .map(|section| section.keys().cloned().collect())
            .unwrap_or_default()
    };
    let expected = [
        // combinators of futures, without a runtime
        "futures-util",
        "hashbrown",
        "hmac",
        "http",
        "ipnet",
        // formatting of numbers, and byte search
        "itoa",
        "memchr",
        "parking_lot",
        "serde",
        "serde_json",
        // pure computation: digests, the STARK curve and its hashes, constant-time comparison
        "sha2",
        "starknet-core",
        "starknet-crypto",
        "starknet-types-core",
        "subtle",
        // without `std` it has no clock: it parses RFC 3339
        "time",
        // comparison of sixteen bytes at once, in safe code
        "wide",
        "zeroize",
    ];
    assert_eq!(
        names("dependencies"),
        BTreeSet::from(expected.map(String::from))
    );
    assert_eq!(names("build-dependencies"), BTreeSet::new());
}

/// The packages of `Cargo.lock`, which has those of all features and machines, with their
/// dependencies, at build time as well.
fn locked() -> Vec<(String, BTreeSet<String>)> {
    let lock: toml::Table = read(&root().join("Cargo.lock")).parse().expect("TOML");
    let packages = lock["package"].as_array().expect("an array of packages");
    let dependencies = |package: &toml::Value| {
        let listed = package.get("dependencies").and_then(toml::Value::as_array);
        // a version follows the name where there are several
        let first = |one: &toml::Value| one.as_str()?.split(' ').next().map(str::to_owned);
        listed
            .map(|listed| listed.iter().filter_map(first).collect())
            .unwrap_or_default()
    };
    let name = |package: &toml::Value| package["name"].as_str().expect("a name").to_owned();
    packages
        .iter()
        .map(|package| (name(package), dependencies(package)))
        .collect()
}

/// The crates that compile C, all with the system's compiler and nothing else; jemalloc also runs
/// `make`. A new one makes the build longer, and may bring code that no Rust tool checks.
#[test]
fn only_known_crates_compile_c() {
    let expected = [
        // of criterion: in benches only
        "alloca",
        "libsqlite3-sys",
        "ring",
        "tikv-jemalloc-sys",
        // of pingora-core
        "zstd-sys",
    ];
    let compile = locked()
        .into_iter()
        .filter(|(_, dependencies)| dependencies.contains("cc"));
    let names: BTreeSet<String> = compile.map(|(name, _)| name).collect();
    assert_eq!(names, BTreeSet::from(expected.map(String::from)));
}

/// Crates by which a build script runs a tool that is not installed with Rust, a C compiler and
/// `make`.
#[test]
fn the_build_needs_no_cmake_and_no_generator() {
    let tools = [
        "autotools",
        "bindgen",
        "clang-sys",
        "cmake",
        "cxx-build",
        "meson",
        "nasm-rs",
        "prost-build",
        "protobuf-codegen",
        "protobuf-src",
    ];
    let wrong: Vec<String> = locked()
        .into_iter()
        .flat_map(|(name, dependencies)| {
            let of = move |on: String| format!("{name} depends on {on}");
            dependencies
                .into_iter()
                .filter(|on| tools.contains(&on.as_str()))
                .map(of)
        })
        .collect();
    assert_none("Rust, a C compiler and make are enough", &wrong);
}

/// `tests/run` names them, because those that mostly wait are a step of their own.
#[test]
fn every_test_target_is_run() {
    let run = read(&root().join("tests/run"));
    let folder = root().join("tests");
    let targets = files_under("tests", "rs").into_iter().filter_map(|path| {
        let place = path
            .strip_prefix(&folder)
            .expect("it is in the folder")
            .with_extension("");
        let names: Vec<_> = place.iter().filter_map(|name| name.to_str()).collect();
        match names[..] {
            [name] | [name, "main"] => Some(name.to_owned()),
            _ => None,
        }
    });
    let wrong: Vec<String> = targets
        .filter(|name| !run.contains(&format!("--test {name}")))
        .collect();
    assert_none("tests/run runs each target of tests", &wrong);
}

#[test]
fn the_lock_file_of_the_fuzz_targets_has_the_dependencies_of_the_policy_crate() {
    let manifest: toml::Table = read(&root().join("filters/Cargo.toml"))
        .parse()
        .expect("TOML");
    let dependencies = manifest["dependencies"].as_table().expect("a table");
    let lock = read(&root().join("tests/fuzz/Cargo.lock"));
    for name in dependencies.keys() {
        let locked = format!("name = \"{name}\"\n");
        assert!(
            lock.contains(&locked),
            "{name} is missing: run cargo metadata in tests/fuzz"
        );
    }
}

/// I/O, clocks, randomness and the environment are in the standard library. The policy crate is
/// built without it, so the compiler refuses all of them; this test ensures that it remains so.
#[test]
fn the_policy_crate_is_no_std() {
    let root = read(&root().join("filters/src/lib.rs"));
    assert!(
        root.contains("\n#![cfg_attr(not(test), no_std)]\n"),
        "the crate is no_std"
    );
    let mut wrong = Vec::new();
    for path in files_under("filters/src", "rs") {
        for word in ["extern crate std", "static mut", "unsafe"] {
            if read(&path)
                .lines()
                .any(|line| line.trim_start().starts_with(word))
            {
                wrong.push(format!("{}: {word}", shown(&path)));
            }
        }
    }
    assert_none("bytes and time in, verdicts out", &wrong);
}

/// The documents to check.
const DOCUMENTS: [&str; 16] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "conf/README.md",
    "conf/interfaces.md",
    "conf/operation.md",
    "conf/nodes.md",
    "conf/feeds/README.md",
    "tests/README.md",
    "conf/fleet/README.md",
    "conf/store/README.md",
    "conf/wallet/README.md",
    "conf/clients/README.md",
    "conf/dev/contracts/README.md",
];

/// The anchor that a forge derives from a heading.
fn anchor(heading: &str) -> String {
    let anchor = heading.trim_start_matches('#').trim().to_lowercase();
    let anchor = anchor
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    anchor.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_of_a_document_resolves() {
    let mut wrong = Vec::new();
    for document in DOCUMENTS {
        let path = root().join(document);
        let text = read(&path);
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                path.clone()
            } else {
                path.with_file_name(file)
            };
            let leads = target.exists()
                && (heading.is_empty()
                    || read(&target)
                        .lines()
                        .any(|line| line.starts_with('#') && anchor(line) == heading));
            if !leads {
                wrong.push(format!("{document}: {link}"));
            }
        }
    }
    assert_none("links lead to files and headings", &wrong);
}

/// The text between backticks in a document's prose, if it is one word.
fn names(document: &str) -> Vec<String> {
    let text = read(&root().join(document));
    let prose = text.split("```").step_by(2);
    let quoted = prose.flat_map(|prose| prose.split('`').skip(1).step_by(2));
    let is_name = |name: &&str| {
        name.chars()
            .all(|c| c.is_alphanumeric() || "._-/".contains(c))
    };
    quoted.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn every_documented_file_exists() {
    let mut wrong = Vec::new();
    // the changelog may name files that no longer exist
    for document in DOCUMENTS
        .iter()
        .filter(|document| **document != "CHANGELOG.md")
    {
        for name in names(document) {
            let is_ours = ["src/", "filters/", "tests/", "benches/", "conf/"]
                .iter()
                .any(|folder| name.starts_with(folder))
                || CRATES
                    .iter()
                    .any(|of| name.starts_with(&format!("{of}/src/")));
            if is_ours && !root().join(&name).exists() {
                wrong.push(format!("{document}: {name}"));
            }
        }
    }
    assert_none("documents name files that exist", &wrong);
}

#[test]
fn every_documented_key_exists() {
    let example = read(&root().join("conf/portcullis.toml"));
    let table: toml::Table = example.parse().expect("the example of all keys is TOML");
    let has = |name: &str| {
        let mut parts = name.split('.');
        let first = parts.next().and_then(|section| table.get(section));
        parts.try_fold(first?, |table, part| table.get(part))
    };
    let mut wrong = Vec::new();
    let documents = [
        "README.md",
        "SECURITY.md",
        "conf/interfaces.md",
        "conf/operation.md",
        "conf/nodes.md",
    ];
    for document in [
        &documents[..],
        &["conf/fleet/README.md", "conf/store/README.md"],
    ]
    .concat()
    {
        for name in names(document) {
            let is_key = name
                .split_once('.')
                .is_some_and(|(section, _)| has(section).is_some());
            let is_value = example.contains(&format!("\"{name}\""));
            if is_key && has(&name).is_none() && !is_value {
                wrong.push(format!("{document}: {name}"));
            }
        }
    }
    assert_none("documents name keys that exist", &wrong);
}

#[test]
fn every_documented_metric_exists() {
    let owners = files_under("base/src/telemetry", "rs")
        .into_iter()
        .chain(files_under("program/src/admin", "rs"));
    let code: String = owners.map(|file| read(&file)).collect();
    let mut wrong = Vec::new();
    for document in DOCUMENTS.iter().map(|document| root().join(document)) {
        let text = read(&document);
        let document = shown(&document);
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .fold(word, |word, suffix| {
                    word.strip_suffix(suffix).unwrap_or(word)
                });
            let is_metric = base
                .strip_prefix("portcullis_")
                .is_some_and(|rest| !CRATES.contains(&rest));
            if is_metric && !code.contains(&format!("\"{base}\"")) {
                wrong.push(format!("{document}: {word}"));
            }
        }
    }
    assert_none("documents name metrics that exist", &wrong);
}
