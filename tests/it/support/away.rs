//! A way over TCP to the PostgreSQL of the tests, which a test opens and closes. While it is
//! closed, connections are refused.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::node::Node;
use super::postgres::Database;

/// A way to a database.
pub(crate) struct Way {
    pub(crate) database: Database,
    address: SocketAddr,
    open: Option<Open>,
}

struct Open {
    is_closing: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    acceptor: JoinHandle<()>,
}

impl Way {
    /// A closed one to an empty database.
    pub(crate) fn closed() -> Self {
        Self {
            database: Database::new(),
            address: Node::nowhere(),
            open: None,
        }
    }

    /// Its URL, as a TOML value.
    pub(crate) fn url(&self) -> String {
        format!(
            "\"postgres://portcullis@{}/{}\"",
            self.address,
            self.database.name()
        )
    }

    /// Accepts connections there until it is dropped, and says nothing.
    pub(crate) fn silent(&self) -> TcpListener {
        TcpListener::bind(self.address).expect("nobody else has it")
    }

    pub(crate) fn open(&mut self) {
        let listener = TcpListener::bind(self.address).expect("nobody else has it");
        let (is_closing, streams) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let (socket, closing, accepted) = (
            self.database.socket(),
            Arc::clone(&is_closing),
            Arc::clone(&streams),
        );
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if closing.load(Ordering::SeqCst) {
                    return;
                }
                accepted
                    .lock()
                    .push(stream.try_clone().expect("a free descriptor"));
                forward(stream, &socket);
            }
        });
        self.open = Some(Open {
            is_closing,
            streams,
            acceptor,
        });
    }

    pub(crate) fn close(&mut self) {
        let Some(Open {
            is_closing,
            streams,
            acceptor,
        }) = self.open.take()
        else {
            return;
        };
        is_closing.store(true, Ordering::SeqCst);
        let _woken = TcpStream::connect(self.address);
        acceptor.join().expect("it does not panic");
        for stream in streams.lock().drain(..) {
            let _ended = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.close();
    }
}

/// Copies both ways until either side ends.
fn forward(client: TcpStream, socket: &Path) {
    let server = UnixStream::connect(socket).expect("PostgreSQL runs");
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let _bytes = io::copy(&mut from, &mut to);
        let _ended = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to) = (server, client);
    std::thread::spawn(move || {
        let _bytes = io::copy(&mut from, &mut to);
        let _ended = to.shutdown(Shutdown::Both);
    });
}

/// The socket of the server whose URL names the folder of it.
pub(super) fn socket_of(server: &str) -> PathBuf {
    let folder = server.split_once('@').map_or(server, |(_, host)| host);
    let folder = folder.trim_end_matches('/').replace("%2F", "/");
    Path::new(&folder).join(".s.PGSQL.5432")
}
