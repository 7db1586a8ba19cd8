//! Finds `starknet-devnet`, or builds it with cargo, once, if it is not installed.
//!
//! The progress is read from the bar that cargo draws on standard error,
//! `Building [==> ] 12/480: …`. It counts crates, and build scripts as crates of their own. An
//! interrupted build is resumed.

use super::{attached, hold};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::env;
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// The version for which the development network is made.
pub(super) const VERSION: &str = "0.10.1";
/// Where its project publishes binaries of that version.
pub(super) const RELEASE: &str =
    "https://github.com/starknet-io/starknet-devnet/releases/tag/v0.10.1";
/// Its container image of that version.
pub(super) const IMAGE: &str = "shardlabs/starknet-devnet-rs:0.10.1";
/// The folder where it is installed.
const TOOLS: &str = "target/tools";
/// The name of the program.
const PROGRAM: &str = "starknet-devnet";
/// Where the package `portcullis-devnet` puts the program.
const PACKAGED: &str = "/usr/lib/portcullis";
/// Little optimisation: it compiles in half the time, and its network is ready 0.3 s later.
const PROFILE: [(&str, &str); 4] = [
    ("OPT_LEVEL", "1"),
    ("CODEGEN_UNITS", "256"),
    ("DEBUG", "false"),
    ("STRIP", "true"),
];
/// Time between two polls of the lock or of cargo.
const POLL: Duration = Duration::from_millis(100);
/// Progress is logged in steps of 5 %.
const LOGGED: usize = 20;

/// Why it is not installed.
#[derive(Debug, Error)]
pub(super) enum InstallError {
    /// A folder or a file for it cannot be written.
    #[error("{0}")]
    File(#[from] io::Error),
    /// Cargo cannot be started, or was lost.
    #[error("cargo: {0}")]
    Cargo(io::Error),
    /// Cargo failed; its log has the reason.
    #[error("cargo install: {0}; see {1}")]
    Failed(ExitStatus, PathBuf),
}

/// Finds the program of the node, in the first of [`places`] that has it.
pub(super) fn find() -> Option<PathBuf> {
    let (path, own) = (
        env::var_os("PATH").unwrap_or_default(),
        env::current_exe().ok(),
    );
    places(&path, own.as_deref())
        .into_iter()
        .find(|program| program.is_file())
}

/// The possible paths of the program, in order: on `PATH`, where a user has put it; next to this
/// program, as unpacked from archives; in the package; in an earlier build.
fn places(path: &OsStr, own: Option<&Path>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = env::split_paths(path).collect();
    folders.extend(own.and_then(Path::parent).map(Path::to_owned));
    folders.push(PACKAGED.into());
    folders.push(Path::new(TOOLS).join("bin"));
    folders
        .into_iter()
        .map(|folder| folder.join(PROGRAM))
        .collect()
}

/// Whether there is a cargo on `PATH`.
pub(super) fn has_cargo() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join("cargo").is_file())
}

/// Builds and installs `starknet-devnet`; reports progress. Other output of cargo is written to
/// `log`.
///
/// # Errors
/// Cargo is missing, or failed.
pub(super) async fn install(
    log: &Path,
    report: impl Fn(String) + Send + 'static,
) -> Result<PathBuf, InstallError> {
    std::fs::create_dir_all(TOOLS)?;
    let lock = File::create(Path::new(TOOLS).join("build.lock"))?;
    while matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
        // another process builds it
        tokio::time::sleep(POLL).await;
    }
    if let Some(program) = find() {
        return Ok(program);
    }
    let folder = Path::new(TOOLS).join("build");
    let mut out = hold::replace(log)?;
    let (mut build, output) = Build::start(&folder).map_err(InstallError::Cargo)?;
    let reader = thread::spawn(move || read(output, &mut out, report));
    let status = build.ended().await.map_err(InstallError::Cargo)?;
    let _ = reader.join();
    let program = find().filter(|_| status.success());
    let program = program.ok_or_else(|| InstallError::Failed(status, log.to_owned()))?;
    // a gigabyte that is not needed any more; a failure to delete it is harmless
    let _ = std::fs::remove_dir_all(folder);
    Ok(program)
}

/// A running cargo with its child processes; dropping it kills them.
struct Build(Child);

impl Build {
    /// Starts cargo; returns it with its standard error.
    fn start(folder: &Path) -> io::Result<(Self, impl Read + Send + use<>)> {
        let mut command = attached::command("cargo");
        command
            .args([
                "install",
                "--locked",
                "starknet-devnet",
                "--version",
                VERSION,
            ])
            .args(["--root", TOOLS, "--target-dir"])
            .arg(folder)
            // `.cargo/config.toml` sets it for the C of this program's crates
            .env("MAKEFLAGS", "")
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_TERM_PROGRESS_WHEN", "always")
            .env("CARGO_TERM_PROGRESS_WIDTH", "80");
        for (key, value) in PROFILE {
            command.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
        }
        let (output, stderr) = io::pipe()?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        // so that Ctrl-C signals only this process
        Ok((Self(command.process_group(0).spawn()?), output))
    }

    async fn ended(&mut self) -> io::Result<ExitStatus> {
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status),
                None => tokio::time::sleep(POLL).await,
            }
        }
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        // compilers are in cargo's group
        if let Ok(group) = i32::try_from(self.0.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

/// Reads the output of cargo until its end.
fn read(from: impl Read, log: &mut File, report: impl Fn(String)) {
    let (mut line, mut logged) = (Vec::new(), 0);
    for byte in BufReader::new(from).bytes().map_while(Result::ok) {
        if !matches!(byte, b'\r' | b'\n') {
            line.push(byte);
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        if let Some((done, total)) = progress(&text) {
            let progress = format!("building starknet-devnet: {done} of {total} crates");
            let part = done * LOGGED / total;
            if part > logged {
                log::info!("{progress}");
                logged = part;
            }
            report(progress);
        } else if !text.trim().is_empty() {
            // the cause, if the build fails
            let _ = writeln!(log, "{text}");
        }
        line.clear();
    }
}

/// Parses a progress bar: the number of crates done, and in total.
fn progress(line: &str) -> Option<(usize, usize)> {
    let (_, bar) = line.split_once("Building [")?;
    let (_, numbers) = bar.split_once("] ")?;
    let (done, total) = numbers.split([':', ' ']).next()?.split_once('/')?;
    Some((
        done.parse().ok()?,
        total.parse().ok().filter(|total| *total > 0)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_named_is_of_one_version() {
        assert!(RELEASE.ends_with(&format!("/v{VERSION}")), "{RELEASE}");
        assert!(IMAGE.ends_with(&format!(":{VERSION}")), "{IMAGE}");
    }

    #[test]
    fn the_users_own_node_precedes_ours() {
        let places = places(
            OsStr::new("/opt/bin:/usr/bin"),
            Some(Path::new("/home/me/portcullis")),
        );
        let expected = [
            "/opt/bin/starknet-devnet",
            "/usr/bin/starknet-devnet",
            "/home/me/starknet-devnet",
            "/usr/lib/portcullis/starknet-devnet",
            "target/tools/bin/starknet-devnet",
        ];
        assert_eq!(places, expected.map(PathBuf::from));
    }

    #[test]
    fn a_bar_of_cargo_is_progress() {
        for (line, expected) in [
            (
                "    Building [=====>       ] 12/480: serde, syn(build)...  ",
                Some((12, 480)),
            ),
            ("\u{1b}[K    Building [=>   ] 0/7: libc", Some((0, 7))),
            (
                "    Building [===>  ] 480/480: starknet-devnet(bin)",
                Some((480, 480)),
            ),
            ("    Building [===>  ] 480/480", Some((480, 480))),
            (" Downloading [===>  ] 3/480: serde", None),
            ("   Compiling libc v0.2.180", None),
            ("    Building [===>  ] 0/0: libc", None),
        ] {
            assert_eq!(progress(line), expected, "{line}");
        }
    }
}
