//! The judges: servers that report how they read a stream.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::client::{Client, PATIENCE, Response};
use crate::http::Request;
use crate::processes::{Folder, Process};
use crate::servers::READ;

/// A judge's reading of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) requests: Vec<Request>,
    pub(crate) end: End,
}

/// How a judge's reading ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It refused what follows.
    Refused,
    /// It announced that it reads no more.
    Closed,
    /// It read to the end of the stream, and either nothing or an incomplete request is left.
    Silent,
}

/// A server that reports what it reads.
pub(crate) struct Judge {
    pub(crate) name: &'static str,
    socket: PathBuf,
    ends: Ends,
}

/// When the client ends its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// With the stream.
    AtOnce,
    /// With the last expected response: HAProxy may drop a pipelined request of a client that has
    /// ended its output before.
    Answered,
}

/// A judge that waits this long is one that waits for more of the stream.
const QUIET: Duration = Duration::from_secs(10);

impl Judge {
    /// Has it read a stream of which it is expected to accept this many requests.
    pub(crate) fn read(&self, stream: &[u8], expected: usize) -> Judgement {
        let responses = match self.ends {
            Ends::AtOnce => converse(&self.socket, stream),
            Ends::Answered => self.converse_until(stream, expected),
        };
        let (mut requests, mut end) = (Vec::new(), End::Silent);
        for response in responses {
            // the origin behind a proxy may refuse a request and not the connection
            if end != End::Silent {
                break;
            }
            match response.field(READ) {
                Some(read) => {
                    requests.push(reported(read));
                    if response.closes() {
                        end = End::Closed;
                    }
                }
                None => {
                    assert!(response.status >= 400, "{}: {response:?}", self.name);
                    end = End::Refused;
                }
            }
        }
        Judgement { requests, end }
    }

    /// Sends a stream, and the end of it behind this many responses.
    fn converse_until(&self, stream: &[u8], expected: usize) -> Vec<Response> {
        let mut client = connect(&self.socket);
        client.send(stream);
        let mut responses = Vec::new();
        client.stream().set_read_timeout(Some(QUIET)).unwrap();
        while responses.len() < expected && client.is_readable() {
            let Some(response) = client.next("") else {
                return responses;
            };
            responses.push(response);
        }
        client.stream().set_read_timeout(Some(PATIENCE)).unwrap();
        let _closed_already = client.stream().shutdown(Shutdown::Write);
        responses.extend(client.rest());
        responses
    }
}

/// Sends a stream and the end of it; returns all responses.
pub(crate) fn converse(socket: &Path, stream: &[u8]) -> Vec<Response> {
    let mut client = connect(socket);
    client.send(stream);
    let _closed_already = client.stream().shutdown(Shutdown::Write);
    client.rest()
}

fn connect(socket: &Path) -> Client<UnixStream> {
    let connection = UnixStream::connect(socket).expect("it listens");
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection.set_write_timeout(Some(PATIENCE)).unwrap();
    Client::new(connection)
}

/// The request of a report: `METHOD target:body`, the last two in hexadecimal digits.
fn reported(read: &str) -> Request {
    let (method, rest) = read.split_once(' ').expect("a method");
    let (target, body) = rest.split_once(':').expect("a target");
    let [target, body] = [target, body].map(|part| hex::decode(part).expect("digits"));
    Request::new(method, &target, &body)
}

/// The running judges and front proxies.
pub(crate) struct Judges {
    pub(crate) all: Vec<Judge>,
    _processes: Vec<Process>,
}

impl Judges {
    /// Starts them, with front proxies in front of `edge`. hyper listens already.
    pub(crate) fn start(folder: &Folder, edge: &str) -> Self {
        let configured = |name: &str, text: &str| {
            let place = folder.file("");
            let text = text.replace("FOLDER/", &place.display().to_string());
            folder.write(name, &text.replace("EDGE", edge))
        };
        let mut nginx = Command::new("nginx");
        let file = configured("nginx.conf", include_str!("nginx.conf"));
        nginx
            .args([
                "-e",
                "stderr",
                "-g",
                "daemon off; master_process off;",
                "-c",
            ])
            .arg(file);
        let mut haproxy = Command::new("haproxy");
        haproxy.args(["-db", "-f"]);
        haproxy.arg(configured("haproxy.cfg", include_str!("haproxy.cfg")));
        let mut node = Command::new("node");
        node.arg("tests/framing/llhttp.js")
            .arg(folder.file("llhttp.sock"));
        let mut processes = Vec::new();
        let judge = |name, ends| {
            let socket = folder.file(&format!("{name}.sock"));
            Judge { name, socket, ends }
        };
        let mut all = vec![judge("hyper", Ends::AtOnce)];
        for (name, command, ends) in [
            ("nginx", nginx, Ends::AtOnce),
            ("haproxy", haproxy, Ends::Answered),
            ("llhttp", node, Ends::AtOnce),
        ] {
            let judge = judge(name, ends);
            let mut process = Process::start(command, folder);
            process.await_socket(&judge.socket);
            processes.push(process);
            all.push(judge);
        }
        Self {
            all,
            _processes: processes,
        }
    }
}
