//! A server for health checks and lookups: it responds to each path as configured, and counts
//! requests.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The response to a path.
#[derive(Clone)]
pub(crate) enum Answer {
    /// A status and a JSON body.
    Is(&'static str, String),
    /// Nothing, until the peer closes the connection.
    Hang,
}

/// A server on its own port, until the end of the tests.
pub(crate) struct Upstream {
    address: SocketAddr,
    requested: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    /// Responds to each path with what `answer` returns.
    pub(crate) fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let requested = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&requested), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        Self { address, requested }
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The number of requests for a path.
    pub(crate) fn requests(&self, path: &str) -> usize {
        self.requested
            .lock()
            .unwrap()
            .iter()
            .filter(|own| *own == path)
            .count()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<String>>, answer: &dyn Fn(&str) -> Answer) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap().push(path.clone());
    match answer(&path) {
        Answer::Is(status, body) => {
            let lines = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n",
                body.len()
            );
            let body = if head.starts_with("HEAD ") { "" } else { &body };
            let _may_have_left = stream.write_all(format!("{lines}{body}").as_bytes());
        }
        Answer::Hang => {
            let _until_it_leaves = std::io::copy(&mut stream, &mut std::io::sink());
        }
    }
}
