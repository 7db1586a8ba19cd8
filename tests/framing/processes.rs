//! Processes that end with the test, and the folder of their sockets.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::client::PATIENCE;

/// A new folder; removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let name = format!("portcullis-framing-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("the directory for temporary files can be written");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file; returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text).expect("the folder is ours");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_dir_all(&self.0);
    }
}

/// A running program; killed on drop, when its log is shown if the test fails.
pub(crate) struct Process {
    pub(crate) child: Child,
    log: Option<PathBuf>,
}

impl Process {
    /// Starts a program that writes its errors into a file of the folder.
    pub(crate) fn start(mut command: Command, folder: &Folder) -> Self {
        // Debian has servers outside PATH for other users than root
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
        let program = Path::new(command.get_program())
            .file_name()
            .expect("it has a name");
        let program = program.to_string_lossy().into_owned();
        let log = folder.file(&format!("{program}.log"));
        let errors = File::create(&log).expect("the folder is ours");
        command
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("install {program}: {error}"));
        Self {
            child,
            log: Some(log),
        }
    }

    /// A process whose errors are read elsewhere.
    pub(crate) fn of(child: Child) -> Self {
        Self { child, log: None }
    }

    /// Waits until it listens on a socket.
    pub(crate) fn await_socket(&mut self, socket: &Path) {
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(socket).is_err() {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "it ended: {ended:?}");
            assert!(
                Instant::now() < deadline,
                "nothing listens on {}",
                socket.display()
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
        if std::thread::panicking()
            && let Some(log) = &self.log
        {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let start = text.len().saturating_sub(2000);
            eprintln!("{}:\n{}", log.display(), text.get(start..).unwrap_or(&text));
        }
    }
}
