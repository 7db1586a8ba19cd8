//! The real program, over real sockets: it must answer as its own parser and policy read a stream.

use std::io::{BufRead as _, BufReader};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::client::{Client, PATIENCE, Response};
use crate::http::{Accepted, Ending, Reading};
use crate::processes::{Folder, Process};

/// `portcullis serve` with a gateway whose limits no test reaches.
pub(crate) struct Program {
    _process: Process,
    /// The gateway's.
    pub(crate) address: SocketAddr,
}

impl Program {
    /// Starts it in front of a node.
    pub(crate) fn start(folder: &Folder, node: SocketAddr) -> Self {
        let text = format!(
            "[server]\nthreads = 2\n[node]\nurl = \"http://{node}/rpc\"\n\
             [gateway]\nlisten = \"127.0.0.1:0\"\nrequests_per_minute = 1000000000\n\
             max_in_flight_per_client = 1000\n[gateway.cache]\nenabled = false\n"
        );
        let file = folder.write("portcullis.toml", &text);
        let program = std::env::var_os("PORTCULLIS");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_portcullis").into());
        let mut command = Command::new(program);
        command.args(["serve", "--config"]).arg(file);
        command.env_remove("PORTCULLIS");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = Process::of(command.spawn().expect("the program can be started"));
        let log = process.child.stderr.take().expect("it is piped");
        let mut lines = BufReader::new(log).lines();
        let mut seen = Vec::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("it ended: {}", seen.join("\n"))
            };
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            if entry["message"] == "listening" && entry["surface"] == "gateway" {
                let address = entry["address"].as_str().expect("an address");
                break address.parse().expect("a TCP address");
            }
            seen.push(line);
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            _process: process,
            address,
        }
    }

    fn connect(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::new(stream)
    }

    /// Sends one request after the other, each behind the response to the last one, in pieces of at
    /// most this many bytes. Each gets its own response, and an unaccepted request ends the
    /// connection.
    ///
    /// # Errors
    /// The program answers otherwise than `ours` says.
    pub(crate) fn serves(&self, stream: &[u8], ours: &Reading, piece: usize) -> Result<(), String> {
        let mut client = self.connect();
        let mut at = 0;
        for (place, accepted) in ours.accepted.iter().enumerate() {
            stream[at..accepted.end]
                .chunks(piece)
                .for_each(|piece| client.send(piece));
            at = accepted.end;
            let response = client.next(&accepted.request.method);
            check(place, accepted, response.as_ref())?;
            if !accepted.persists {
                let _closed_already = client.stream().shutdown(Shutdown::Write);
                return ends(&mut client, &[]);
            }
            if response.is_some_and(|response| response.closes()) {
                return Err(format!("request {place} ends the connection"));
            }
        }
        stream[at..]
            .chunks(piece)
            .for_each(|piece| client.send(piece));
        let _closed_already = client.stream().shutdown(Shutdown::Write);
        match ours.ending {
            Ending::Refused(status) => ends(&mut client, &[status]),
            Ending::Whole | Ending::Incomplete | Ending::Closed => ends(&mut client, &[]),
        }
    }

    /// Sends everything at once. The program may stop after any request, but the requests that it
    /// answers are those of `ours`.
    ///
    /// # Errors
    /// The program answers otherwise than `ours` says.
    pub(crate) fn serves_pipelined(&self, stream: &[u8], ours: &Reading) -> Result<(), String> {
        let mut client = self.connect();
        client.send(stream);
        let _closed_already = client.stream().shutdown(Shutdown::Write);
        for (place, accepted) in ours.accepted.iter().enumerate() {
            let response = client.next(&accepted.request.method);
            if response.is_none() && place > 0 {
                return Ok(());
            }
            check(place, accepted, response.as_ref())?;
            if response.is_some_and(|response| response.closes()) {
                return ends(&mut client, &[]);
            }
        }
        match ours.ending {
            Ending::Refused(status) => ends(&mut client, &[status]),
            Ending::Whole | Ending::Incomplete | Ending::Closed => ends(&mut client, &[]),
        }
    }
}

fn check(place: usize, accepted: &Accepted, response: Option<&Response>) -> Result<(), String> {
    let Some(response) = response else {
        return Err(format!("request {place} is not answered"));
    };
    let (status, id) = (response.status, response.id());
    if status != accepted.status || (accepted.id.is_some() && id != accepted.id) {
        let (expected, expected_id) = (accepted.status, &accepted.id);
        return Err(format!(
            "request {place} is {status} {id:?} instead of {expected} {expected_id:?}"
        ));
    }
    Ok(())
}

/// Asserts the statuses of all further responses.
fn ends(client: &mut Client<TcpStream>, expected: &[u16]) -> Result<(), String> {
    let rest = client.rest();
    if !client.stray().is_empty() {
        return Err(format!("it sends {}", client.stray().escape_ascii()));
    }
    let statuses: Vec<u16> = rest.iter().map(|response| response.status).collect();
    if statuses != expected {
        return Err(format!("it ends with {statuses:?} instead of {expected:?}"));
    }
    if rest.iter().any(|response| !response.closes()) {
        return Err("the last response does not announce the end".into());
    }
    Ok(())
}
