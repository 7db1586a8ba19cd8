//! Backups: what they hold while a relay writes, and relays that run on what was restored.

use sqlx::Connection as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use portcullis_filters::felt::Felt;

use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::postgres::Database;
use crate::support::relay::devnet;
use crate::support::relay::expect::submitted;
use crate::support::relay::stage::{Stage, post};
use crate::support::relay::user::Signed;

/// Acknowledged writes before and after a backup.
const SOME: usize = 3;

fn text(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).expect("what is printed is text")
}

fn backup(setup: &Setup, to: &str) -> Output {
    setup.run_with("store backup", &[to], "")
}

fn succeeds(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    text(&output.stdout)
}

/// The names of the files in a folder that are about this one.
fn files(folder: &Folder, name: &str) -> Vec<String> {
    let entries = folder.path().read_dir().unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|own| own.starts_with(name)).collect()
}

fn on(setup: &Setup, url: &str) -> Setup {
    setup.clone().set("store.url", url)
}

/// Lets a user write until `work` is done; the writes that were acknowledged before it began.
fn while_writing(stage: &Stage, relay: &Edge, work: impl FnOnce()) -> Vec<Signed> {
    let user = devnet::deployed();
    let (written, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let some_more = || {
        let (deadline, before) = (Instant::now() + PATIENCE, written.lock().unwrap().len());
        while written.lock().unwrap().len() < before + SOME {
            assert!(Instant::now() < deadline, "the relay does not write");
            std::thread::yield_now();
        }
        before + SOME
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nonce in 1.. {
                let next = stage.fine(&user, nonce);
                let answer = Client::connect(relay.relay()).ask(&post("/rpc", next.body()));
                submitted(&answer, next.hash, "a write meanwhile");
                written.lock().unwrap().push(next);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let before = some_more();
        work();
        some_more();
        is_over.store(true, Ordering::Relaxed);
        before
    });
    let mut written = written.into_inner().unwrap();
    written.truncate(SOME);
    written
}

/// Asserts that the journal in `setup`'s store is whole, and that a relay on it answers a repeat of
/// each write as before without sending it again.
fn assert_restored(stage: &Stage, setup: &Setup, written: &[Signed]) {
    let verified = succeeds(&setup.run_with("journal", &["verify"], ""));
    assert!(verified.contains("all unchanged"), "{verified}");
    let (relay, sent) = (setup.start(), stage.adds().len());
    for write in written {
        let answer = Client::connect(relay.relay()).ask(&post("/rpc", write.body()));
        submitted(&answer, write.hash, "a repeat after the restore");
    }
    assert_eq!(
        stage.adds().len(),
        sent,
        "what is in the journal is not sent again"
    );
    assert_ne!(written[0].hash, Felt::ZERO);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_backup_of_a_writing_relay_is_whole() {
    let stage = Stage::on_devnet();
    let (elsewhere, mut last) = (Folder::new(), String::new());
    let written = while_writing(&stage, &stage.edge, || {
        for number in 0..3 {
            last = elsewhere.file(&format!("{number}.db"));
            let said = succeeds(&backup(&stage.setup, &last));
            assert!(
                said.starts_with(&last) && said.trim_end().ends_with("bytes"),
                "{said}"
            );
        }
    });
    let mode = Path::new(&last).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner reads it");
    assert_eq!(files(&elsewhere, "2"), ["2.db"], "it is one file");
    assert_restored(
        &stage,
        &on(&stage.setup, &format!("\"sqlite:{last}\"")),
        &written,
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_dump_of_a_writing_relay_is_whole() {
    let stage = Stage::on_devnet();
    let (from, to, elsewhere) = (Database::new(), Database::new(), Folder::new());
    let setup = on(&stage.setup, &from.url());
    let relay = setup.start();
    let dump = elsewhere.file("backup.dump");
    let written = while_writing(&stage, &relay, || {
        // the command is that which `backup` prints
        let refused = backup(&setup, &dump);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let said = text(&refused.stderr);
        let command = said
            .lines()
            .find(|line| line.contains("pg_dump"))
            .expect("a command");
        succeeds(&Command::new("sh").args(["-c", command]).output().unwrap());
    });
    let url = to.url();
    let arguments = [
        "--exit-on-error",
        "--no-owner",
        "--dbname",
        url.trim_matches('"'),
        &dump,
    ];
    succeeds(&Command::new("pg_restore").args(arguments).output().unwrap());
    assert_restored(&stage, &on(&setup, &to.url()), &written);
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn the_printed_dump_runs_without_credentials() {
    let (database, folder, elsewhere) = (Database::new(), Folder::new(), Folder::new());
    let name = database.name();
    database.run(&format!(
        "CREATE ROLE dumper LOGIN PASSWORD 'it''s'; ALTER DATABASE {name} OWNER TO dumper"
    ));
    folder.secret("it's a password", "it's\n");
    let credentials = folder.path().display().to_string();
    let setup = Setup::before(Node::nowhere())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://portcullis.test\"")
        .set(
            "store.url",
            &database.url().replace("portcullis@", "dumper@"),
        )
        .set("store.password_file", "\"it's a password\"")
        .environment("CREDENTIALS_DIRECTORY", &credentials);
    succeeds(&setup.run("store migrate"));
    let dump = elsewhere.file("it's.dump");
    let refused = backup(&setup, &dump);
    let said = text(&refused.stderr);
    let command = said.lines().find(|line| line.contains("pg_dump"));
    let mut shell = Command::new("sh");
    shell.args(["-c", command.expect("a command")]);
    succeeds(&shell.current_dir("/").output().unwrap());
    succeeds(
        &Command::new("pg_restore")
            .args(["--list", &dump])
            .output()
            .unwrap(),
    );
}

#[test]
fn a_backup_overwrites_nothing() {
    let stage = Stage::scripted();
    let taken = stage.folder.secret("taken.db", "mine");
    let refused = backup(&stage.setup, &taken);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains(&taken), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "mine");
    assert_eq!(
        files(&stage.folder, "taken.db"),
        ["taken.db"],
        "nothing is left next to it"
    );
}

#[test]
fn a_failed_backup_leaves_no_file() {
    let folder = Folder::new();
    let store = format!("\"sqlite:{}\"", folder.file("no.db"));
    let stage = Stage::scripted();
    let setup = on(&stage.setup, &store);
    let failed = backup(&setup, &folder.file("backup.db"));
    assert_eq!(
        failed.status.code(),
        Some(70),
        "there is no store: {failed:?}"
    );
    assert_eq!(
        files(&folder, ""),
        [""; 0],
        "neither a store nor a backup is created"
    );

    let nowhere = folder.file("missing/backup.db");
    let failed = backup(&stage.setup, &nowhere);
    assert_eq!(
        failed.status.code(),
        Some(2),
        "there is no folder: {failed:?}"
    );
    assert!(text(&failed.stderr).contains(&nowhere), "{failed:?}");
}

/// Makes the tables those of a later version.
fn migrate_further(file: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let url = format!("sqlite:{file}");
        let mut store = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let later = "INSERT INTO _sqlx_migrations SELECT 99, 'later', installed_on, success, \
            checksum, execution_time FROM _sqlx_migrations WHERE version = 1";
        sqlx::raw_sql(later).execute(&mut store).await.unwrap();
        store.close().await.unwrap();
    });
}

#[test]
fn a_backup_undoes_a_migration() {
    let folder = Folder::new();
    let (file, saved) = (folder.file("journal.db"), folder.file("before.db"));
    let stage = Stage::scripted();
    let setup = on(&stage.setup, &format!("\"sqlite:{file}\""));
    succeeds(&setup.run("store migrate"));
    succeeds(&backup(&setup, &saved));
    migrate_further(&file);

    let older = setup.serve_in_vain();
    let said = text(&older.stderr);
    assert_eq!(older.status.code(), Some(2), "{said}");
    assert!(
        said.contains("another version") && said.contains("99"),
        "{said}"
    );
    let migrated = setup.run("store migrate");
    let said = text(&migrated.stderr);
    assert_eq!(migrated.status.code(), Some(70), "{said}");
    assert!(said.contains("restore the backup"), "{said}");
    succeeds(&backup(&setup, &folder.file("after.db")));

    for name in files(&folder, "journal.db") {
        std::fs::remove_file(folder.file(&name)).unwrap();
    }
    std::fs::rename(&saved, &file).unwrap();
    succeeds(&setup.run("store migrate"));
    succeeds(&setup.run_with("journal", &["verify"], ""));
}
