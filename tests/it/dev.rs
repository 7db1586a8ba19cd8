//! `portcullis dev` with a real node: a second one changes nothing, its configuration is right, and
//! it survives the end of its node and a prune.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;

use crate::support::dev::{Dev, SURFACES, dev, eventually, said};
use crate::support::edge::{program, signal};
use crate::support::folder::Folder;

/// Every file of a folder with its content, except those of a database that is in use.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let entries = entries.filter(|entry| entry.path().is_file());
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let names = names.filter(|name| !name.contains(".db-") && name != "node.log");
    names
        .map(|name| (name.clone(), std::fs::read(folder.join(&name)).unwrap()))
        .collect()
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_second_dev_changes_nothing() {
    let folder = Folder::new();
    let first = Dev::start(folder.path());
    let before = files(folder.path());
    let prepare = ["--prepare", "--node", "http://127.0.0.1:1/rpc"];
    for more in [&[][..], &["--fresh"], &prepare] {
        let output = dev(folder.path(), more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", said(&output));
        let holder = format!("is in use by process {}", first.child.id());
        assert!(
            said(&output).contains(&holder),
            "{more:?}: {}",
            said(&output)
        );
    }
    assert!(files(folder.path()) == before, "no file has changed");
    assert_eq!(
        (first.view_call(), first.ready().status),
        (200, 200),
        "the first one serves"
    );
    first.stop();
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn the_written_configuration_has_the_ports_in_use() {
    let folder = Folder::new();
    let dev = Dev::start(folder.path());
    let config = dev.config();
    for surface in SURFACES {
        let listen = config[surface]["listen"].as_str().unwrap();
        assert_eq!(listen, dev.address(surface).to_string(), "{surface}");
    }
    let base_url = config["sidecar"]["base_url"].as_str().unwrap();
    assert_eq!(base_url, format!("http://{}", dev.address("sidecar")));
    dev.stop();
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_node_that_dies_is_started_again() {
    let folder = Folder::new();
    let mut dev = Dev::start(folder.path());
    for _ in 0..2 {
        let node = dev.node();
        signal(node, "KILL");
        dev.wait_for("the node ended (signal: 9");
        dev.wait_for("the node runs again");
        assert_ne!(dev.node(), node);
        assert_eq!(dev.view_call(), 200, "the printed commands work");
        eventually("the pins hold again", || dev.ready().status == 200);
    }
    dev.stop();
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn the_relay_of_a_second_start_waits_for_no_earlier_chain() {
    let folder = Folder::new();
    let dev = Dev::start(folder.path());
    proves(&dev);
    dev.stop();
    let dev = Dev::start(folder.path());
    proves(&dev);
    dev.stop();
}

/// Waits until the pins hold, of which none is another chain's.
fn proves(dev: &Dev) {
    eventually("the pins hold", || {
        let ready = dev.ready();
        assert!(!ready.text().contains("shared_epoch"), "{}", ready.text());
        ready.status == 200
    });
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn dev_starts_again_after_a_prune() {
    let folder = Folder::new();
    Dev::start(folder.path()).stop();
    let mut prune = program();
    prune.args([
        "store",
        "prune",
        "--suggestions-older-than",
        "0s",
        "--feed-items-older-than",
        "0s",
    ]);
    let output = prune
        .arg("--config")
        .arg(folder.path().join("portcullis.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    Dev::start(folder.path()).stop();
}

#[test]
fn ports_in_use_stop_dev_before_it_starts_anything() {
    let folder = Folder::new();
    let taken =
        ["gateway", "sidecar"].map(|name| (name, TcpListener::bind("127.0.0.1:0").unwrap()));
    let mut command = dev(folder.path(), &["--fresh"]);
    for (name, listener) in &taken {
        let variable = format!("PORTCULLIS__{}__LISTEN", name.to_uppercase());
        command.env(variable, listener.local_addr().unwrap().to_string());
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    for (name, listener) in &taken {
        let address = listener.local_addr().unwrap();
        // what another test is about to start has the sockets of this process, too
        let holder = format!("{name}.listen: {address} is in use by process ");
        let variable = format!("PORTCULLIS__{}__LISTEN", name.to_uppercase());
        for named in [holder, variable] {
            assert!(
                said(&output).contains(&named),
                "{named} in {}",
                said(&output)
            );
        }
    }
    let left: Vec<_> = files(folder.path()).into_keys().collect();
    assert_eq!(left, ["dev.lock"], "nothing was created");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_fresh_start_deletes_only_what_dev_wrote() {
    let folder = Folder::new();
    for (name, text) in [("thesis.txt", "mine"), ("src/main.c", "mine, too")] {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    Dev::start(folder.path()).stop();
    let before = files(folder.path());
    let mut fresh = Dev::spawn(dev(folder.path(), &["--fresh"]), folder.path());
    fresh.wait_for_all(&["Log lines follow", " serving"]);
    fresh.stop();
    let after = files(folder.path());
    for end in [".key", ".token", ".secret", ".session"] {
        let secrets = before.iter().filter(|(name, _)| name.ends_with(end));
        let kept: Vec<_> = secrets
            .filter(|(name, text)| after[*name] == **text)
            .collect();
        assert!(kept.is_empty(), "it has started over: {kept:?}");
    }
    for name in ["thesis.txt", "src/main.c"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
}

#[test]
fn dev_changes_nothing_of_others() {
    let (folder, other) = (Folder::new(), Folder::new());
    let said_of = |path: &Path, more: &[&str]| {
        let output = dev(path, more).output().unwrap();
        assert_eq!(output.status.code(), Some(70), "{}", said(&output));
        said(&output)
    };
    let config = folder.path().join("portcullis.toml");
    std::fs::write(&config, "# mine").unwrap();
    assert!(said_of(folder.path(), &[]).contains("portcullis.toml"));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "# mine");
    std::fs::remove_file(&config).unwrap();
    let precious = other.path().join("precious");
    std::fs::write(&precious, "text").unwrap();
    std::os::unix::fs::symlink(&precious, folder.path().join("dev.lock")).unwrap();
    said_of(folder.path(), &[]);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "text");
    std::fs::write(other.path().join("dev.lock"), "1").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(other.path(), &link).unwrap();
    let untouched = || {
        let files = std::fs::read_dir(other.path()).unwrap();
        let names = files.map(|file| file.unwrap().file_name());
        names.collect::<BTreeSet<_>>()
    };
    let before = untouched();
    for more in [&["--fresh"][..], &[]] {
        let slash = link.join("");
        for path in [&link, &slash] {
            assert!(said_of(path, more).contains("is a link"), "{path:?}");
        }
    }
    std::fs::remove_file(folder.path().join("dev.lock")).unwrap();
    std::os::unix::fs::symlink(&precious, folder.path().join("portcullis.db")).unwrap();
    assert!(said_of(folder.path(), &[]).contains("portcullis.db is a link"));
    assert_eq!(untouched(), before);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "text");
}
