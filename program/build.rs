//! The build script: names the commit that a release build is made of.

use std::env;
use std::error::Error;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let revision = revision();
    let mut version = env::var("CARGO_PKG_VERSION")?;
    if !revision.is_empty() {
        version += &format!(" ({revision})");
    }
    println!("cargo::rustc-env=PORTCULLIS_VERSION={version}");
    println!("cargo::rustc-env=PORTCULLIS_REVISION={revision}");
    Ok(())
}

/// The commit that a release build is made of: `$REVISION`, or else that of the checkout; empty if
/// neither is known. Other builds have none: each commit would compile them anew.
fn revision() -> String {
    println!("cargo::rerun-if-env-changed=REVISION");
    if env::var("PROFILE").as_deref() == Ok("debug") {
        return String::new();
    }
    let commit = env::var("REVISION").ok().or_else(|| {
        println!(
            "cargo::rerun-if-changed={}",
            git(&["--git-path", "logs/HEAD"])?
        );
        git(&["HEAD"])
    });
    let is_commit = |text: &String| text.len() >= 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let mut commit = commit.filter(is_commit).unwrap_or_default();
    commit.truncate(8);
    commit
}

/// The output of `git rev-parse`.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("rev-parse")
        .args(arguments)
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
