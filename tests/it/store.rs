//! Operator commands on the store: `store migrate`, `import`, `export`, `prune`, and
//! `sign-webhook`.

use sqlx::Connection as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::admin::eventually;
use crate::support::edge::{Setup, program};
use crate::support::folder::Folder;
use crate::support::node::Node;

const FOLLOW: &str =
    r#"{"type":"follow","did":"did:web:a.example","subject_did":"did:web:b.example"}"#;

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("what is printed is text")
}

fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("what is printed is text")
}

/// A configuration of a sidecar alone, with its store in the folder.
fn setup(folder: &Folder) -> Setup {
    Setup::before(Node::nowhere())
        .unset("gateway.listen")
        .unset("gateway.requests_per_minute")
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://cards.example\"")
        .set(
            "store.url",
            &format!("\"sqlite:{}\"", folder.file("content.db")),
        )
}

/// `portcullis store COMMAND --config FILE MORE…`
fn store(setup: &Setup, command: &str, more: &[&str], input: &str) -> Output {
    setup.run_with(&format!("store {command}"), more, input)
}

#[test]
fn what_is_exported_can_be_imported_elsewhere() {
    let (folder, other) = (Folder::new(), Folder::new());
    let from = setup(&folder);
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/dev/content");
    let mut files: Vec<_> = samples
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let files: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let output = store(&from, "import", &files, "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = printed(&output);
    assert_eq!(
        text.lines().count(),
        files.len(),
        "a line for each file: {text}"
    );
    assert!(text.contains("1-accounts.ndjson: 14 account"), "{text}");
    assert_eq!(complaint(&output), "", "no bar where nobody watches");

    let output = store(&from, "export", &[], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let content = printed(&output);
    let to = setup(&other);
    let output = store(&to, "import", &["-"], &content);
    assert_eq!(
        output.status.code(),
        Some(0),
        "from standard input: {output:?}"
    );
    let exported = store(&to, "export", &[], "");
    assert_eq!(exported.status.code(), Some(0), "{exported:?}");
    assert_eq!(printed(&exported), content);
    let warning = complaint(&exported);
    assert!(
        warning.contains("no journal") && warning.contains("store backup"),
        "what is left out: {warning}"
    );
    let pages = store(&to, "export", &["--type", "page"], "");
    assert_eq!(complaint(&pages), "", "one type is no backup");
    let pages = printed(&pages);
    assert!(
        !pages.is_empty() && pages.lines().all(|line| line.contains("\"page\"")),
        "{pages}"
    );
}

#[test]
fn a_refused_import_changes_nothing() {
    let folder = Folder::new();
    let setup = setup(&folder);
    let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
    std::fs::write(&good, FOLLOW).unwrap();
    std::fs::write(&bad, format!("{FOLLOW}\n{{\"type\":\"follow\"}}\n")).unwrap();
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());

    let output = store(&setup, "import", &[bad, good], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = complaint(&output);
    assert!(
        text.contains(bad) && text.contains("line 2: follow.did is missing"),
        "{text}"
    );
    assert_eq!(
        printed(&store(&setup, "export", &[], "")),
        "",
        "nor is a file after it imported"
    );

    let output = store(&setup, "import", &[good, bad], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        printed(&store(&setup, "export", &[], "")),
        format!("{FOLLOW}\n"),
        "one before it"
    );
}

#[test]
fn forgetting_a_user_reports_each_table() {
    let folder = Folder::new();
    let setup = setup(&folder);
    let user = "5b0b6f9e-0c55-4b0e-9d0a-6b8d4f1c2a77";
    let account = format!(
        r#"{{"type":"account","user_id":"{user}","did":"did:web:a.example","created_at":"2026-01-03T09:00:00Z"}}"#
    );
    let output = store(&setup, "import", &["-"], &format!("{account}\n{FOLLOW}\n"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (name, follows) in [
        (&*user.to_uppercase(), 1),
        (user, 0),
        ("did:web:nobody.example", 0),
    ] {
        let output = store(&setup, "forget", &[name], "");
        assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
        let text = printed(&output);
        let rows = [
            ("age_event", 0),
            ("age_session", 0),
            ("age_user", 0),
            ("follow", follows),
        ];
        let expected = rows.map(|(table, rows)| format!("{table:<16} {rows:>9} deleted"));
        assert_eq!(text.lines().take(4).collect::<Vec<_>>(), expected, "{name}");
    }
    assert_eq!(
        printed(&store(&setup, "export", &[], "")),
        format!("{account}\n").replace("\"created_at\"", "\"status\":\"active\",\"created_at\""),
        "the account is content"
    );
}

/// The files of the store that hold this text.
fn holding(folder: &Folder, text: &str) -> Vec<String> {
    let files = folder
        .path()
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let holds = |file: &PathBuf| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    files
        .filter(holds)
        .map(|file| file.display().to_string())
        .collect()
}

#[test]
fn no_file_holds_who_was_forgotten() {
    let folder = Folder::new();
    let setup = setup(&folder);
    let mut edge = setup.start();
    let follows: String = (0..200)
        .map(|number| FOLLOW.replace("b.example", &format!("b{number}.example")) + "\n")
        .collect();
    let output = store(&setup, "import", &["-"], &follows);
    assert_eq!(
        output.status.code(),
        Some(0),
        "next to a server: {output:?}"
    );
    assert_ne!(
        holding(&folder, "did:web:a.example"),
        [""; 0],
        "it is stored"
    );
    let output = store(&setup, "forget", &["did:web:a.example"], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(holding(&folder, "did:web:a.example"), [""; 0]);

    let output = store(&setup, "import", &["-"], FOLLOW);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let log = folder.path().join("content.db-wal");
    assert!(log.exists(), "the server has the store open");
    edge.signal("TERM");
    edge.wait();
    assert!(!log.exists(), "it closed the store when it stopped");
}

#[test]
fn a_senseless_command_is_a_usage_error() {
    let folder = Folder::new();
    let setup = setup(&folder);
    for (command, more) in [
        ("import", &[][..]),
        ("import", &["no/such/file"]),
        ("import", &["--base-url", "cards.example", "-"]),
        ("import", &["--base-url", "https://cards.example/path", "-"]),
        ("import", &["--base-url", "http://cards.example", "-"]),
        ("export", &["--type", "feed"]),
        ("prune", &["--keys-older-than", "old"]),
        ("forget", &[]),
        ("forget", &["ann"]),
    ] {
        let output = store(&setup, command, more, "");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{command} {more:?}: {output:?}"
        );
    }
    assert!(
        !folder.path().join("content.db").exists(),
        "and makes no store"
    );
    let without = Setup::before(Node::nowhere());
    let output = store(&without, "migrate", &[], "");
    assert_eq!(
        output.status.code(),
        Some(2),
        "no store is configured: {output:?}"
    );
    let elsewhere = setup.set("store.url", "\"sqlite:/no/such/folder/a.db\"");
    let output = store(&elsewhere, "migrate", &[], "");
    assert_eq!(
        output.status.code(),
        Some(70),
        "it cannot be opened: {output:?}"
    );
}

#[test]
fn podcast_urls_extend_the_base_url() {
    let guid = |more: &[&str]| {
        let folder = Folder::new();
        let setup = setup(&folder);
        let podcast = r#"{"type":"podcast","did":"did:web:a.example","title":"T","description":"D","link":"https://a.example/","language":"en","category":"Leisure","explicit":false,"image_url":"https://a.example/i.jpg","updated_at":"2026-11-21T08:00:00Z"}"#;
        let output = store(&setup, "import", &[more, &["-"]].concat(), podcast);
        assert_eq!(output.status.code(), Some(0), "{more:?}: {output:?}");
        printed(&store(&setup, "export", &[], ""))
    };
    let configured = guid(&[]);
    assert_eq!(guid(&["--base-url", "https://Cards.Example/"]), configured);
    assert_ne!(guid(&["--base-url", "https://other.example"]), configured);
}

#[test]
fn standard_input_is_stored_under_a_random_name() {
    let folder = Folder::new();
    let file = folder.secret("config.toml", &setup(&folder).toml());
    // exec preserves the process id
    let script = r#"ln -s "$TMPDIR/else" "$TMPDIR/portcullis-import-$$" && exec "$0" "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_portcullis")]);
    command
        .args(["store", "import", "--config", &file, "-"])
        .env("TMPDIR", folder.path());
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(FOLLOW.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        printed(&store(&setup(&folder), "export", &[], "")),
        format!("{FOLLOW}\n")
    );
    let left = folder
        .path()
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left
        .filter(|name| name.to_string_lossy().contains("import"))
        .collect();
    assert_eq!(left.len(), 1, "nothing but what was there before: {left:?}");
}

#[tokio::test]
async fn older_tables_must_be_migrated_first() {
    let folder = Folder::new();
    let setup = setup(&folder);
    assert!(store(&setup, "migrate", &[], "").status.success());
    let url = format!("sqlite:{}", folder.file("content.db"));
    let mut tables = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let older = "DELETE FROM _sqlx_migrations WHERE version > 1";
    sqlx::raw_sql(older).execute(&mut tables).await.unwrap();
    tables.close().await.unwrap();
    for (command, more) in [("import", &["-"][..]), ("export", &[]), ("prune", &[])] {
        let output = store(&setup, command, more, FOLLOW);
        assert_eq!(output.status.code(), Some(70), "{command}: {output:?}");
        let text = complaint(&output);
        assert!(
            text.contains("run `portcullis store migrate`"),
            "{command}: {text}"
        );
    }
}

#[tokio::test]
async fn the_tables_are_made_and_tidied_up() {
    let folder = Folder::new();
    let setup = setup(&folder);
    for _ in 0..2 {
        let output = store(&setup, "migrate", &[], "");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    assert!(folder.path().join("content.db").exists());
    let old = r#"{"type":"feed_item","feed":"showcase","author_did":"did:web:a.example","post_uri":"at://did:web:a.example/a.b.c/1","sort_at":"2020-01-01T00:00:00Z"}"#;
    assert!(store(&setup, "import", &["-"], old).status.success());
    let url = format!("sqlite:{}", folder.file("content.db"));
    let mut tables = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let days = "INSERT INTO refusal SELECT 'rpc', 'batch', at, at, 9 FROM (SELECT \
                1000000 * (unixepoch() - 86400 * column1) AS at FROM (VALUES (89), (91)))";
    sqlx::raw_sql(days).execute(&mut tables).await.unwrap();
    tables.close().await.unwrap();
    let output = store(&setup, "prune", &[], "");
    let text = printed(&output);
    assert!(
        text.contains("refusals                 1 deleted"),
        "{text}"
    );
    for (more, forgotten) in [
        (&[][..], 0),
        (&["--feed-items-older-than", "90d"], 1),
        (&["--keys-older-than", "1s"], 0),
    ] {
        let output = store(&setup, "prune", more, "");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = printed(&output);
        assert!(
            text.contains(&format!("feed items {:>15} deleted", forgotten)),
            "{text}"
        );
    }
}

#[tokio::test]
async fn the_metrics_show_the_last_prune() {
    let folder = Folder::new();
    let setup = setup(&folder);
    assert!(store(&setup, "migrate", &[], "").status.success());
    let url = format!("sqlite:{}", folder.file("content.db"));
    let mut tables = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let long_ago = "UPDATE pruning SET pruned_us = 5999999";
    sqlx::raw_sql(long_ago).execute(&mut tables).await.unwrap();
    tables.close().await.unwrap();

    let at = "portcullis_store_pruned_timestamp_seconds";
    let edge = setup.start();
    eventually(&edge, "it is read at the start", |now| now[at] == 5.0);
    let output = store(&setup, "prune", &[], "");
    assert_eq!(
        output.status.code(),
        Some(0),
        "next to the server: {output:?}"
    );
    drop(edge);
    let edge = setup.start();
    eventually(&edge, "it survives a restart", |now| now[at] > 1.6e9);
}

#[tokio::test]
async fn the_metrics_show_how_much_is_stored() {
    let folder = Folder::new();
    let setup = setup(&folder);
    assert!(store(&setup, "migrate", &[], "").status.success());
    let file = folder.file("content.db");
    let mut tables = sqlx::SqliteConnection::connect(&format!("sqlite:{file}"))
        .await
        .unwrap();
    let stored = "UPDATE chain_head SET seq = 7";
    sqlx::raw_sql(stored).execute(&mut tables).await.unwrap();
    tables.close().await.unwrap();
    let bytes = std::fs::metadata(&file).unwrap().len();

    let edge = setup.start();
    eventually(&edge, "the sizes are read at the start", |now| {
        now["portcullis_store_bytes"] >= bytes as f64
            && now["portcullis_relay_journal_entries"] == 7.0
    });
}

#[test]
fn a_webhook_is_signed_as_others_sign_it() {
    let folder = Folder::new();
    // RFC 4231 has no ASCII key of 32 bytes: this one is from `openssl dgst -sha256 -hmac`
    let secret = folder.secret("secret", "0123456789abcdef0123456789abcdef\n");
    let body = folder.path().join("body");
    std::fs::write(&body, "{\"event_id\":\"1\"}").unwrap();
    let signed = |body: &str| {
        let arguments = ["sign-webhook", "--secret-file", &secret, body];
        program().args(arguments).output().unwrap()
    };
    let output = signed(body.to_str().unwrap());
    let expected = "sha256=e41d46d480f406dec7deca048a2054c07693611a9c1c3979677213ac867ff5a1\n";
    assert_eq!(printed(&output), expected, "{output:?}");
    assert_eq!(signed("no/such/file").status.code(), Some(2));
}
