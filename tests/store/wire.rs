//! A wire to PostgreSQL that is cut at a drawn request: the server ends the session, as an
//! administrator, a failover or a crash would.
//!
//! The wire forwards the messages of the protocol. A request ends with a simple query, as those
//! that begin and end a transaction are, or with a sync, as all others do. The session is ended
//! before the server gets the end of the request, or once it has answered, which the client does
//! not see; or it stays open, and the client sees no answer any more.

use crate::toolkit::Chance;
use crate::world::{World, config};
use portcullis_base::config::StoreConfig;
use sqlx::postgres::PgConnectOptions;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// Where a session is ended, or falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) request: Request,
    pub(crate) moment: Moment,
}

impl Cut {
    /// Three choices.
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let number = Request::Number(chance.choose(12));
        let request = chance.pick(&[Request::Commit, number]);
        Self {
            request,
            moment: chance.pick(&[Moment::Before, Moment::After]),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// The request after this many others.
    Number(u32),
    /// The next commit.
    Commit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The server never sees it whole.
    Before,
    /// The server has done it.
    After,
    /// The server has done it, and the session stays open without another answer.
    Silent,
}

#[derive(Default)]
struct Armed {
    cut: Option<Cut>,
    /// The commit that the session was ended at, since it was armed.
    ended: Option<Moment>,
}

impl Armed {
    /// The cut that is due at the end of a request.
    fn due(&mut self, is_commit: bool) -> Option<Moment> {
        let cut = self.cut.as_mut()?;
        match &mut cut.request {
            Request::Number(left @ 1..) => {
                *left -= 1;
                return None;
            }
            Request::Commit if !is_commit => return None,
            Request::Number(0) | Request::Commit => {}
        }
        let moment = cut.moment;
        self.cut = None;
        self.ended = is_commit.then_some(moment);
        Some(moment)
    }
}

/// A port that leads to the database of a world.
pub(crate) struct Wire {
    config: StoreConfig,
    armed: Arc<Mutex<Armed>>,
}

impl Wire {
    pub(crate) async fn to(world: &World) -> Self {
        let options: PgConnectOptions = world.url.parse().unwrap();
        let folder = options
            .get_socket()
            .expect("tests/lib/postgres.sh listens on a Unix socket");
        let socket = folder.join(format!(".s.PGSQL.{}", options.get_port()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let name = world.url.rsplit('/').next().unwrap();
        let url = format!(
            "postgres://{}@127.0.0.1:{port}/{name}",
            options.get_username()
        );
        let armed = Arc::new(Mutex::new(Armed::default()));
        let line = Line {
            socket,
            admin: world.url.clone(),
            armed: Arc::clone(&armed),
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(line.clone().serve(client));
            }
        });
        Self {
            config: config(&url),
            armed,
        }
    }

    pub(crate) fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Ends or silences the session of the request, from now on.
    pub(crate) fn arm(&self, cut: Cut) {
        *self.armed.lock().unwrap() = Armed {
            cut: Some(cut),
            ended: None,
        };
    }

    /// Ends no more sessions; the moment, if one was ended at a commit.
    pub(crate) fn disarm(&self) -> Option<Moment> {
        std::mem::take(&mut *self.armed.lock().unwrap()).ended
    }
}

#[derive(Clone)]
struct Line {
    socket: PathBuf,
    admin: String,
    armed: Arc<Mutex<Armed>>,
}

impl Line {
    /// Forwards both ways until either side is gone.
    async fn serve(self, mut client: TcpStream) {
        // each message is forwarded by itself, and must not wait for the next
        client.set_nodelay(true).unwrap();
        let mut server = UnixStream::connect(&self.socket).await.unwrap();
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        let (mut process, mut withheld, mut is_silent) = (None, false, false);
        // without the type that begins every later message
        let mut is_started = false;
        loop {
            tokio::select! {
                read = client.read_buf(&mut asked) => if read.unwrap_or(0) == 0 { return },
                read = server.read_buf(&mut answered) => if read.unwrap_or(0) == 0 { return },
            }
            while let Some(message) = take(&mut asked, usize::from(is_started)) {
                let is_end = is_started && matches!(message.first(), Some(b'Q' | b'S'));
                let due = if is_end { self.due(&message) } else { None };
                is_started = true;
                if due == Some(Moment::Before) {
                    return self.end(process, server, client).await;
                }
                withheld |= due == Some(Moment::After);
                is_silent |= due == Some(Moment::Silent);
                if server.write_all(&message).await.is_err() {
                    return;
                }
            }
            while let Some(message) = take(&mut answered, 1) {
                match message.first() {
                    Some(b'K') => process = message.get(5..9).map(number),
                    Some(b'Z') if withheld => return self.end(process, server, client).await,
                    _ => {}
                }
                let is_forwarded = !withheld && !is_silent;
                if is_forwarded && client.write_all(&message).await.is_err() {
                    return;
                }
            }
        }
    }

    fn due(&self, message: &[u8]) -> Option<Moment> {
        self.armed
            .lock()
            .unwrap()
            .due(message.ends_with(b"COMMIT\0"))
    }

    /// Ends the session, and then reports the server's reason to the client.
    async fn end(&self, process: Option<u32>, mut server: UnixStream, mut client: TcpStream) {
        let process = process.expect("the server names its process before it is ready");
        let end = format!("SELECT pg_terminate_backend({process})");
        crate::world::raw(&self.admin, &end).await.unwrap();
        let mut reason = Vec::new();
        // until the process has ended, and with it the transaction
        let _ = server.read_to_end(&mut reason).await;
        let _ = client.write_all(&reason).await;
    }
}

/// The first message, if it is whole: a type of this many bytes, a length that includes itself, and
/// the rest.
fn take(bytes: &mut Vec<u8>, type_bytes: usize) -> Option<Vec<u8>> {
    let length = number(bytes.get(type_bytes..type_bytes + 4)?) as usize + type_bytes;
    (bytes.len() >= length).then(|| bytes.drain(..length).collect())
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}
