//! The folder and the addresses that one `dev` holds for itself before it changes anything.

use super::content;
use super::error::DevError;
use nix::fcntl::OFlag;
use portcullis_base::config::{Draft, Listen};
use portcullis_base::telemetry::Surface;
use portcullis_program::process::inherited::Inherited;
use portcullis_program::process::listen;
use portcullis_program::process::server::StartError;
use portcullis_store::{Store, StoreError};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The lock of a folder, with the id of the process that holds it.
const LOCK: &str = "dev.lock";
/// The configuration, in the folder.
const CONFIG_FILE: &str = "portcullis.toml";
/// The node's log, in the folder.
pub(super) const NODE_LOG: &str = "node.log";
/// The log of the node's build, in the folder.
pub(super) const BUILD_LOG: &str = "build.log";
/// The default address of each surface.
const ADDRESSES: [(Surface, &str); 4] = [
    (Surface::Gateway, "127.0.0.1:8080"),
    (Surface::Relay, "127.0.0.1:8081"),
    (Surface::Sidecar, "127.0.0.1:8082"),
    (Surface::Admin, "127.0.0.1:8083"),
];
/// The sidecar's origin if no client can use its address.
const BASE_URL: &str = "http://127.0.0.1:8082";

/// The files that a run writes into its folder, besides the lock.
const OWN: [&str; 16] = [
    CONFIG_FILE,
    NODE_LOG,
    BUILD_LOG,
    "portcullis.db",
    "portcullis.db-journal",
    "portcullis.db-shm",
    "portcullis.db-wal",
    "portcullis.db.lock",
    "relay.token",
    "operator.token",
    "session.secret",
    "webhook.secret",
    "user.session",
    "owner.key",
    "verifier.key",
    "faucet.key",
];

/// A folder that no other `dev` uses, until it is dropped.
pub(super) struct Held {
    _lock: File,
    /// Whether an earlier run has used the folder.
    was_used: bool,
}

/// Creates the folder if it is missing, and locks it.
///
/// # Errors
/// Another `dev` uses it, or another program, or it cannot be written to, or it is a link.
pub(super) fn lock(state: &Path) -> Result<Held, DevError> {
    let failed = |error| DevError::State(state.to_owned(), error);
    refuse_links(state).map_err(failed)?;
    std::fs::create_dir_all(state).map_err(failed)?;
    let path = state.join(LOCK);
    let was_used = path.exists();
    if !was_used && state.join(CONFIG_FILE).exists() {
        let why = "its portcullis.toml was not written by `portcullis dev`";
        return Err(failed(io::Error::other(why)));
    }
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path);
    let mut file = options.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut process = String::new();
            file.read_to_string(&mut process).map_err(failed)?;
            return Err(DevError::Held(state.to_owned(), process.trim().to_owned()));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(failed)?;
    Ok(Held {
        _lock: file,
        was_used,
    })
}

/// A folder that comes with somebody's project may lead elsewhere, and so may its store, which is
/// opened where it is. Other files are replaced, or only read.
fn refuse_links(state: &Path) -> io::Result<()> {
    // without a slash at its end, which leads behind a link
    let state: PathBuf = state.components().collect();
    let store = OWN.iter().filter(|name| name.starts_with("portcullis.db"));
    for path in store.map(|name| state.join(name)).chain([state.clone()]) {
        if path.is_symlink() {
            let why = format!("{} is a link", path.display());
            return Err(io::Error::other(why));
        }
    }
    Ok(())
}

/// A new file in the place of an old one, or of a link, whose target stays as it is.
pub(super) fn replace(path: &Path) -> io::Result<File> {
    remove(path)?;
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Removes a file or a link that may be missing.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes the configuration, and returns its place.
pub(super) fn write_config(state: &Path, text: &str) -> io::Result<PathBuf> {
    let path = state.join(CONFIG_FILE);
    replace(&path)?.write_all(text.as_bytes())?;
    Ok(path)
}

/// Fails while another process serves with the SQLite store.
pub(super) async fn store_is_free(state: &Path) -> Result<(), DevError> {
    match Store::examine(&content::store(state)?, None)
        .await
        .ok()
        .and_then(|found| found.in_use)
    {
        Some(lock) => Err(DevError::Store(StoreError::Locked(lock))),
        None => Ok(()),
    }
}

/// Deletes what an earlier run wrote into the folder, if there was one, and nothing else.
///
/// # Errors
/// A file cannot be deleted.
pub(super) fn empty(held: &Held, state: &Path) -> io::Result<()> {
    if !held.was_used {
        return Ok(());
    }
    for name in OWN {
        remove(&state.join(name))?;
    }
    Ok(())
}

/// Where each surface listens.
pub(super) struct Addresses {
    surfaces: Vec<(Surface, Listen)>,
    is_sidecar_secured: bool,
}

impl Addresses {
    /// The addresses that the defaults and `env` configure.
    ///
    /// # Errors
    /// The environment has mistakes. Those in `relay.pins` are ignored: the pins are not known yet.
    pub(super) fn configured(
        template: &str,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, DevError> {
        let default = |text: String, (surface, address): &(Surface, &str)| {
            text.replace(&placeholder(*surface), address)
        };
        let text = ADDRESSES.iter().fold(template.to_owned(), default);
        let text = text
            .replace("NODE_URL", "http://127.0.0.1:1/rpc")
            .replace("BASE_URL", BASE_URL);
        // the faucet is an account of its own
        let text = text.replace("# PINS\n", "faucet = \"0x2\"\n");
        let Draft {
            config, mistakes, ..
        } = Draft::parse(&text, env)?;
        mistakes.or_else(|errors| errors.except_in("relay.pins"))?;
        let surfaces = ADDRESSES.iter().filter_map(|(surface, _)| {
            let mut listeners = config.listeners();
            let (_, listen) = listeners.find(|(key, _)| *key == surface.listen_key())?;
            Some((*surface, listen.clone()))
        });
        let surfaces = surfaces.collect();
        let is_sidecar_secured = config
            .sidecar
            .is_some_and(|sidecar| sidecar.live.tls.is_some());
        Ok(Self {
            surfaces,
            is_sidecar_secured,
        })
    }

    /// Binds every address, and replaces it with the actual one.
    ///
    /// # Errors
    /// Returns all that cannot be bound.
    pub(super) fn bind(&mut self) -> Result<Inherited, DevError> {
        let mut bound = Vec::new();
        let mut failed = Vec::new();
        for (surface, listen) in &mut self.surfaces {
            match listen::bind(*surface, listen, &mut Inherited::default()) {
                Ok(socket) => {
                    *listen = socket.listen.clone();
                    bound.push((surface.name().to_owned(), socket));
                }
                Err(error) => failed.push(StartError::Bind(*surface, listen.clone(), error)),
            }
        }
        if failed.is_empty() {
            return Ok(Inherited::bound(bound));
        }
        Err(DevError::Bind(failed))
    }

    /// Where a surface listens.
    pub(super) fn of(&self, surface: Surface) -> Option<&Listen> {
        self.surfaces
            .iter()
            .find_map(|(of, listen)| (*of == surface).then_some(listen))
    }

    /// Fills in these addresses, and the sidecar's origin, which feeds and podcasts contain.
    pub(super) fn fill(&self, template: &str) -> String {
        let fill = |text: String, (surface, listen): &(Surface, Listen)| {
            text.replace(&placeholder(*surface), &listen.to_string())
        };
        let text = self.surfaces.iter().fold(template.to_owned(), fill);
        text.replace("BASE_URL", &self.base_url())
    }

    fn base_url(&self) -> String {
        let Some(&Listen::Tcp(mut address)) = self.of(Surface::Sidecar) else {
            return BASE_URL.to_owned();
        };
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        // http:// is for loopback only, and port 0 cannot be connected to
        if address.port() == 0 || !address.ip().is_loopback() {
            return BASE_URL.to_owned();
        }
        let scheme = if self.is_sidecar_secured {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{address}")
    }
}

/// The placeholder of a surface's address in the template.
fn placeholder(surface: Surface) -> String {
    format!("{}_LISTEN", surface.name().to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_base::config::Config;

    const TEXT: &str = "[node]\nurl = \"NODE_URL\"\n[gateway]\nlisten = \"GATEWAY_LISTEN\"\n\
                        [sidecar]\nlisten = \"SIDECAR_LISTEN\"\nbase_url = \"BASE_URL\"\n";

    fn variables(env: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let name = |name: &str| OsString::from(format!("PORTCULLIS__{name}"));
        env.iter()
            .map(|(key, value)| (name(key), OsString::from(*value)))
            .collect()
    }

    #[test]
    fn feeds_contain_the_port_of_the_sidecar() {
        let listen = |listen| vec![("SIDECAR__LISTEN", listen)];
        let tls = vec![
            ("SIDECAR__TLS__CERTIFICATE_FILE", "c"),
            ("SIDECAR__TLS__KEY_FILE", "k"),
        ];
        let own = [
            ("SIDECAR__LISTEN", "[::1]:1"),
            ("SIDECAR__BASE_URL", "https://a.example"),
        ];
        for (env, expected) in [
            (vec![], "http://127.0.0.1:8082"),
            (listen("127.0.0.1:9082"), "http://127.0.0.1:9082"),
            (listen("[::1]:9082"), "http://[::1]:9082"),
            (listen("0.0.0.0:9082"), "http://127.0.0.1:9082"),
            (listen("127.0.0.1:0"), "http://127.0.0.1:8082"),
            (listen("unix:/run/sidecar"), "http://127.0.0.1:8082"),
            (tls, "https://127.0.0.1:8082"),
            (own.to_vec(), "https://a.example"),
        ] {
            let text = Addresses::configured(TEXT, variables(&env))
                .unwrap()
                .fill(TEXT);
            let text = text.replace("NODE_URL", "http://127.0.0.1:5050");
            let sidecar = Config::parse(&text, variables(&env))
                .unwrap()
                .sidecar
                .unwrap();
            assert_eq!(sidecar.live.base_url, expected);
        }
    }

    #[test]
    fn the_configuration_has_the_bound_ports() {
        let any = [
            ("GATEWAY__LISTEN", "127.0.0.1:0"),
            ("SIDECAR__LISTEN", "127.0.0.1:0"),
        ];
        let mut addresses = Addresses::configured(TEXT, variables(&any)).unwrap();
        let _bound = addresses.bind().unwrap();
        let text = addresses
            .fill(TEXT)
            .replace("NODE_URL", "http://127.0.0.1:5050");
        assert!(!text.contains(":0\""), "{text}");
        let sidecar = Config::parse(&text, []).unwrap().sidecar.unwrap();
        assert_eq!(sidecar.live.base_url, format!("http://{}", sidecar.listen));
    }
}
