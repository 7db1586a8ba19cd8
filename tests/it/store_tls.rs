//! TLS to PostgreSQL: a real server with a certificate of an authority of its own, and servers that
//! are not to be trusted. Nothing ever falls back to the clear.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use portcullis_base::config::{StoreConfig, StoreTls};
use portcullis_filters::felt::Felt;
use portcullis_store::{SessionLock, Store};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::admin::eventually;
use crate::peer_certificates::lasts;
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::Setup;
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::good;

/// An authority in `<name>.pem`, and a certificate of it for `host` in `<name>-host.pem`, which
/// expires in this year.
fn authority(folder: &Folder, name: &str, host: &str, expires: i32) {
    let params = |names: Vec<String>| {
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = date_time_ymd(1975, 1, 1);
        params.not_after = date_time_ymd(4096, 1, 1);
        params
    };
    let (key, host_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut own = params(Vec::new());
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    own.distinguished_name.push(DnType::CommonName, name);
    folder.secret(
        &format!("{name}.pem"),
        &own.self_signed(&key).unwrap().pem(),
    );
    let issuer = Issuer::new(own, key);
    let mut of_host = params(vec![host.to_owned()]);
    of_host.not_after = date_time_ymd(expires, 1, 1);
    let certificate = of_host.signed_by(&host_key, &issuer).unwrap();
    folder.secret(&format!("{name}-host.pem"), &certificate.pem());
    folder.secret(&format!("{name}-host.key"), &host_key.serialize_pem());
}

/// A PostgreSQL that takes connections only over TLS, with the certificate `own-host.pem`.
struct Server {
    shell: Child,
    address: IpAddr,
    folder: Folder,
}

/// Starts it, and ends it with the standard input.
const SCRIPT: &str = r#"
set -euo pipefail
source tests/lib/postgres.sh
trap stop_postgres EXIT
owner=$(POSTGRES_FOLDER=/ as_postgres id -u)
install -o "$owner" -m 600 "$2" "$2.server"
install -o "$owner" -m 600 "$3" "$3.server"
start_postgres listen_addresses="$1" ssl=on ssl_cert_file="$2.server" ssl_key_file="$3.server"
as_postgres sed -i 's/^host /hostssl /' "$POSTGRES_FOLDER/data/pg_hba.conf"
as_postgres "$POSTGRES_BIN/pg_ctl" -D "$POSTGRES_FOLDER/data" -s reload
echo started
cat >/dev/null
"#;

impl Server {
    /// A server whose certificate is for its address, or for another host.
    fn start(host: Option<&str>) -> Self {
        Self::start_until(host, 4096)
    }

    /// A server whose certificate expires in this year.
    fn start_until(host: Option<&str>, expires: i32) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let last = NEXT.fetch_add(1, Ordering::Relaxed);
        // no other test listens there
        let address = IpAddr::V4(Ipv4Addr::new(127, 192 | (high & 0x3f), low, last));
        let folder = Folder::new();
        authority(
            &folder,
            "own",
            host.unwrap_or(&address.to_string()),
            expires,
        );
        let mut shell = Command::new("bash")
            .args(["-c", SCRIPT, "postgres", &address.to_string()])
            .args([folder.file("own-host.pem"), folder.file("own-host.key")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut said = String::new();
        let stdout = shell.stdout.take().expect("it is piped");
        BufReader::new(stdout)
            .read_line(&mut said)
            .expect("it is open");
        assert_eq!(said, "started\n", "PostgreSQL is installed");
        Self {
            shell,
            address,
            folder,
        }
    }

    fn url(&self) -> String {
        format!("postgres://portcullis@{}/postgres", self.address)
    }

    /// A sidecar on this store.
    fn setup(&self, keys: &[(&str, &str)]) -> Setup {
        sidecar(&self.url(), keys)
    }

    fn file(&self, name: &str) -> String {
        format!("{:?}", self.folder.file(name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _status = self.shell.wait();
    }
}

fn sidecar(url: &str, keys: &[(&str, &str)]) -> Setup {
    let setup = Setup::before(Node::nowhere())
        .set("sidecar.base_url", "\"http://127.0.0.1:1\"")
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("store.url", &format!("{url:?}"));
    keys.iter()
        .fold(setup, |setup, (key, value)| setup.set(key, value))
}

const VERIFIED: (&str, &str) = ("store.tls", "\"verify-full\"");

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Asserts that neither `check` nor `store` accepts the store, and that `serve` serves without it,
/// all for this reason.
fn assert_refused(setup: &Setup, expected: &str) {
    let node = Node::start(good);
    let url = format!("\"http://{}/rpc\"", node.address());
    let edge = setup.clone().set("node.url", &url).start();
    assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200, "{expected}");
    eventually(&edge, expected, |_| {
        let shown = edge.admin_get("/readyz?verbose").text().to_owned();
        shown.contains("store unreachable") && shown.contains(expected)
    });
    drop(edge);
    for (subcommand, code) in [("check", 1), ("store migrate", 2)] {
        let output = setup.run(subcommand);
        let found = words(&output);
        assert_ne!(
            output.status.code(),
            Some(0),
            "{subcommand} ({code}): {found}"
        );
        assert!(
            found.contains(expected),
            "{subcommand}: expected {expected:?} in {found}"
        );
    }
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn every_connection_to_postgresql_is_encrypted() {
    let server = Server::start(None);
    let ca = server.file("own.pem");
    let setup = server.setup(&[VERIFIED, ("store.ca_file", &ca)]);
    let checked = setup.run("check");
    assert_eq!(checked.status.code(), Some(0), "{}", words(&checked));
    let migrated = setup.run("store migrate");
    assert_eq!(migrated.status.code(), Some(0), "{}", words(&migrated));
    let edge = setup.start();
    let mut client = Client::connect(edge.sidecar());
    let response = client.ask(&Request::new("GET", "/functions/seo-sitemap"));
    assert_eq!(
        response.status,
        200,
        "a read over the pool: {}",
        response.text()
    );
    lasts(&edge, "store", [1975, 4096]);
    let config = StoreConfig {
        url: server.url(),
        read_url: None,
        password_file: None,
        max_connections: 2,
        connection_lifetime: PATIENCE,
        tls: StoreTls::VerifyFull,
        ca_file: Some(server.folder.path().join("own.pem")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Store::open(&config, None).await.unwrap();
        let signer = Felt::parse("0xa").expect("a felt");
        let mut lock = SessionLock::of_signer(signer);
        lock.acquire(&store, PATIENCE).await.unwrap();
        lock.check().await.unwrap();
        lock.release().await.unwrap();
        store.close().await;
    });
    let clear = server.setup(&[]);
    assert_refused(&clear, "no encryption");
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn an_untrusted_postgresql_is_refused_with_the_remedy() {
    let server = Server::start(Some("db.test"));
    authority(&server.folder, "other", "db.test", 4096);
    let (own, other) = (server.file("own.pem"), server.file("other.pem"));
    for (keys, expected) in [
        (vec![VERIFIED], "unknown issuer; set store.ca_file"),
        (
            vec![VERIFIED, ("store.ca_file", &*other)],
            "unknown issuer; set store.ca_file",
        ),
        (
            vec![VERIFIED, ("store.ca_file", &*own)],
            "not for this host name; connect to a name",
        ),
    ] {
        assert_refused(&server.setup(&keys), expected);
    }
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn an_expired_certificate_of_postgresql_closes_nothing_else() {
    let server = Server::start_until(None, 1976);
    let ca = server.file("own.pem");
    let setup = server.setup(&[VERIFIED, ("store.ca_file", &ca)]);
    assert_refused(&setup, "certificate of PostgreSQL: expired");
}

#[test]
fn nothing_is_sent_in_the_clear_to_a_server_without_tls() {
    /// Ends the server.
    const LAST: [u8; 8] = [0; 8];
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("postgres://portcullis@{address}/postgres");
    let server = std::thread::spawn(move || {
        let mut after = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut request = [0; 8];
            // the process may end at any time
            if stream.read_exact(&mut request).is_err() {
                continue;
            }
            if request == LAST {
                return after;
            }
            // an SSLRequest: its length, and 1234 and 5679
            assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47]);
            stream.write_all(b"N").unwrap();
            let _reset = stream.read_to_end(&mut after);
        }
        after
    });
    assert_refused(&sidecar(&url, &[VERIFIED]), "set ssl = on at PostgreSQL");
    let mut last = TcpStream::connect(address).unwrap();
    last.write_all(&LAST).unwrap();
    let after = server.join().expect("each asks for TLS");
    assert!(after.is_empty(), "{:?}", String::from_utf8_lossy(&after));
}

#[test]
fn contradicting_keys_are_refused() {
    let folder = Folder::new();
    let text = folder.secret("text.pem", "no certificate");
    let url = "postgres://a@127.0.0.1:1/a";
    let refuses = |url: &str, keys: &[(&str, &str)], expected: &str| {
        let output = sidecar(url, keys).run("check");
        let found = words(&output);
        assert_eq!(output.status.code(), Some(1), "{found}");
        assert!(found.contains(expected), "expected {expected:?} in {found}");
    };
    let missing = ("store.ca_file", "\"missing.pem\"");
    let text = format!("{text:?}");
    refuses("sqlite:a.db", &[VERIFIED], "SQLite is a file");
    refuses(url, &[missing], "or store.tls = \"verify-full\"");
    refuses(
        url,
        &[VERIFIED, missing],
        "store.ca_file: missing.pem: No such file",
    );
    refuses(
        url,
        &[VERIFIED, ("store.ca_file", &text)],
        "certificates in PEM",
    );
    refuses(
        &format!("{url}?sslmode=disable"),
        &[VERIFIED],
        "leave sslmode out",
    );
    refuses(
        "postgres://a@%2Frun/a",
        &[VERIFIED],
        "a Unix socket has no TLS",
    );
}
