//! Upgrade on SIGUSR2: the program at the same path replaces the process without downtime, or the
//! running process continues unchanged.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::manager::{Manager, listener, value};
use crate::node_head::{ask_about, row};
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup, scratch_path, signal};
use crate::support::folder::Folder;
use crate::support::node::{Act, Latch, Node};
use crate::support::request::{QUESTION, Request};
use crate::support::script::{echo, good};

/// A successor process; killed on drop.
pub(crate) struct Successor(u32);

impl Successor {
    /// Triggers the handover, and waits until the service manager is notified.
    pub(crate) fn of(edge: &Edge, manager: &Manager) -> Self {
        edge.signal("USR2");
        let stated = manager.hear_of("MAINPID=");
        let process = value(&stated, "MAINPID").parse().expect("a process id");
        assert_ne!(process, edge.process(), "another process");
        let successor = Self(process);
        manager.hear_of("READY=1");
        successor
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        signal(self.0, "KILL");
    }
}

/// The path of a program that can be replaced.
struct Place(PathBuf);

impl Place {
    fn holding(program: &str) -> Self {
        let place = Self(scratch_path("program"));
        symlink(program, &place.0).unwrap();
        place
    }

    fn put_script(&self, text: &str) {
        std::fs::remove_file(&self.0).unwrap();
        std::fs::write(&self.0, text).unwrap();
        std::fs::set_permissions(&self.0, PermissionsExt::from_mode(0o755)).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.0);
    }
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_portcullis");

fn says(edge: &Edge, words: &str) {
    edge.line(words, |line| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.contains(words))
    });
}

/// A connection accepted by the successor. The old process may accept some until it has closed its
/// listeners; each of them gets one response and is closed.
fn connection_to_the_successor(edge: &Edge) -> Client {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut new = edge.client();
        let answered = new.ask(&ask_about(4, "\"c\""));
        assert_eq!(
            answered.status,
            200,
            "a new connection is answered: {}",
            answered.text()
        );
        if !answered.announces_close() {
            return new;
        }
        assert!(
            Instant::now() < deadline,
            "the old process accepts connections for ever"
        );
    }
}

#[test]
fn a_successor_serves_before_its_predecessor_stops() {
    let latch = Latch::default();
    let hold = latch.clone();
    let node = Node::start(move |call| {
        let held = (row(call) == 1).then(|| Act::Hold(hold.clone()));
        held.into_iter().chain(echo(call)).collect()
    });
    let manager = Manager::new();
    // a drain delay does not apply when a successor holds the sockets
    let setup = Setup::before(node.address()).set("server.drain_delay", "\"60s\"");
    let mut edge = manager.of(setup).start();
    let mut in_flight = edge.client();
    in_flight.send(ask_about(1, "\"held\"").bytes());
    node.wait_for_calls(1);
    let mut persistent = edge.client();
    assert_eq!(
        persistent.ask(&ask_about(2, "\"a\"")).status,
        200,
        "a persistent connection"
    );
    let next = ask_about(3, "\"b\"").bytes();
    persistent.send(&next[..20]);

    let successor = Successor::of(&edge, &manager);
    says(&edge, "another process has the sockets");
    persistent.send(&next[20..]);
    let answered = persistent.response();
    assert_eq!(
        answered.status,
        200,
        "a persistent connection is answered: {}",
        answered.text()
    );
    assert!(answered.announces_close(), "for the last time");
    let mut new = connection_to_the_successor(&edge);
    // a service manager that stops the service now signals the old process, too
    edge.signal("TERM");
    says(&edge, "stopping already");
    latch.open();
    assert_eq!(
        in_flight.response().status,
        200,
        "what was in flight is answered"
    );
    assert_eq!(
        edge.wait_alone().code(),
        Some(0),
        "the old process ends well"
    );
    assert_eq!(
        new.ask(&ask_about(5, "\"d\"")).status,
        200,
        "and the new one goes on"
    );
    drop(successor);
}

#[test]
fn the_successor_runs_the_program_now_installed() {
    let (node, manager) = (Node::start(good), Manager::new());
    let place = Place::holding(PROGRAM);
    let setup = manager.of(Setup::before(node.address())).program(&place.0);
    let mut edge = setup.start();
    let mark = scratch_path("mark");
    place.put_script(&format!(
        "#!/bin/sh\ntouch {}\nexec {PROGRAM} \"$@\"\n",
        mark.display()
    ));
    let _successor = Successor::of(&edge, &manager);
    assert_eq!(edge.wait_alone().code(), Some(0));
    assert!(mark.exists(), "the new program ran");
    std::fs::remove_file(mark).unwrap();
    assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200, "it serves");
}

#[test]
fn a_failed_successor_changes_nothing() {
    let (node, manager) = (Node::start(good), Manager::new());
    let place = Place::holding(PROGRAM);
    let setup = manager.of(Setup::before(node.address())).program(&place.0);
    let edge = setup.start();
    manager.hear_of("READY=1");
    let mut persistent = edge.client();
    for (what, text) in [
        ("ends", "#!/bin/sh\nexit 3\n"),
        ("is no program", "not one"),
        ("says something else", "#!/bin/sh\necho x >&3\n"),
    ] {
        place.put_script(text);
        edge.signal("USR2");
        let status = manager.hear_of("STATUS=serving, after a successor FAILED");
        assert!(
            status.contains(&edge.gateway().to_string()),
            "{what}: {status}"
        );
        let answered = persistent.ask(&Request::post(QUESTION));
        assert_eq!(answered.status, 200, "{what}: {}", answered.text());
        assert!(!answered.announces_close(), "{what}: nothing stops");
    }
    says(&edge, "not handed over");
    std::fs::remove_file(&place.0).unwrap();
    symlink(PROGRAM, &place.0).unwrap();
    let _successor = Successor::of(&edge, &manager);
}

#[test]
fn a_wrong_configuration_stops_the_successor() {
    let (node, manager) = (Node::start(good), Manager::new());
    let setup = manager.of(Setup::before(node.address()));
    let edge = setup.start();
    edge.rewrite(&setup.set("gateway.max_clients", "\"many\""));
    edge.signal("USR2");
    manager.hear_of("STATUS=serving, after a successor FAILED");
    says(&edge, "not handed over");
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "the old process serves on"
    );
}

#[test]
fn a_stop_during_handover_ends_both_processes() {
    let (node, manager) = (Node::start(good), Manager::new());
    let place = Place::holding(PROGRAM);
    let setup = manager.of(Setup::before(node.address())).program(&place.0);
    let mut edge = setup.start();
    let mark = scratch_path("mark");
    place.put_script(&format!(
        "#!/bin/sh\ntouch {}\nexec sleep 600\n",
        mark.display()
    ));
    edge.signal("USR2");
    manager.hear_of("STATUS=handing over");
    wait_for(&mark);
    edge.signal("TERM");
    // standard error is closed everywhere: the successor held the last copy
    assert_eq!(edge.wait().code(), Some(0), "both end");
    std::fs::remove_file(mark).unwrap();
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < deadline, "the successor does not run");
        std::thread::yield_now();
    }
}

#[test]
fn only_a_changed_address_is_bound_anew() {
    let (node, manager) = (Node::start(good), Manager::new());
    let setup = manager.of(Setup::before(node.address()));
    let mut edge = setup.start();
    manager.hear_of("READY=1");
    let (old_gateway, admin) = (edge.gateway(), edge.admin());
    edge.rewrite(&setup.set("gateway.listen", "\"127.0.0.2:0\""));
    edge.signal("USR2");
    let process = value(&manager.hear_of("MAINPID="), "MAINPID")
        .parse()
        .unwrap();
    let _successor = Successor(process);
    let ready = manager.hear_of("READY=1");
    let status = value(&ready, "STATUS");
    assert!(
        status.contains(&format!("admin {admin}")),
        "the same as before: {status}"
    );
    let gateway = status
        .split("gateway ")
        .nth(1)
        .and_then(|rest| rest.split(',').next());
    let gateway = gateway
        .and_then(|address| address.parse().ok())
        .expect("an address");
    assert_eq!(edge.wait_alone().code(), Some(0));
    let response = Client::connect(gateway).ask(&Request::post(QUESTION));
    assert_eq!(response.status, 200, "the new address serves");
    assert!(
        std::net::TcpStream::connect(old_gateway).is_err(),
        "nobody is at the old one"
    );
}

#[test]
fn a_handover_keeps_the_service_managers_sockets() {
    let (node, manager) = (Node::start(good), Manager::new());
    let (socket, address) = listener();
    // the inherited socket overrides the configured address
    let setup = Setup::before(node.address()).set("gateway.listen", "\"127.0.0.1:1\"");
    let mut edge = manager.of(setup).socket("gateway", &socket).start();
    manager.hear_of("READY=1");
    let successor = Successor::of(&edge, &manager);
    assert_eq!(
        edge.wait_alone().code(),
        Some(0),
        "nobody else accepts any more"
    );
    let mut persistent = Client::connect(address);
    assert_eq!(persistent.ask(&Request::post(QUESTION)).status, 200);
    let request = Request::post(QUESTION).bytes();
    persistent.send(&request[..20]);
    signal(successor.0, "TERM");
    manager.hear_of("STOPPING=1");
    persistent.send(&request[20..]);
    let answered = persistent.response();
    assert_eq!(
        answered.status, 200,
        "no 503, as the next process will have the socket"
    );
    std::mem::forget(successor);
}

#[test]
fn sqlite_is_not_handed_over() {
    let (node, folder, manager) = (Node::start(good), Folder::new(), Manager::new());
    let database = folder.file("portcullis.db");
    let setup = Setup::before(node.address())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://cards.example\"")
        .set("store.url", &format!("\"sqlite:{database}\""));
    let edge = manager.of(setup).start();
    manager.hear_of("READY=1");
    edge.signal("USR2");
    let status = manager.hear_of("STATUS=serving");
    assert!(
        value(&status, "STATUS").contains("restart"),
        "what to do instead: {status}"
    );
    says(&edge, "restart instead");
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "it serves on"
    );
}
