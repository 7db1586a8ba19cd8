//! What an attacker could read in the memory of a running relay.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use portcullis_filters::felt::Felt;

use crate::support::relay::devnet;
use crate::support::relay::stage::Stage;

/// A mapping of the process: its line in `/proc/PID/maps`, and its bytes.
struct Mapping(String, Vec<u8>);

/// The writable memory of a process; `None` if the kernel shows it to nobody, as after
/// `PR_SET_DUMPABLE` it does to all but root.
fn memory(process: u32) -> Option<Vec<Mapping>> {
    let memory = match File::open(format!("/proc/{process}/mem")) {
        Ok(memory) => memory,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
        Err(error) => panic!("{error}"),
    };
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("it runs");
    let writable = maps.lines().filter(|line| line.contains(" rw"));
    let mappings = writable.filter_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        let (start, end) = (number(start), number(end));
        let mut bytes = vec![0; usize::try_from(end - start).expect("it fits")];
        // what was unmapped meanwhile is not there
        let read = memory.read_at(&mut bytes, start).ok()?;
        bytes.truncate(read);
        Some(Mapping(line.to_owned(), bytes))
    });
    Some(mappings.collect())
}

/// The mappings in which `secret` is found, once for each time.
fn places(memory: &[Mapping], secret: &[u8]) -> Vec<String> {
    let finder = |Mapping(line, bytes): &Mapping| {
        let found = bytes.windows(secret.len()).filter(|bytes| *bytes == secret).count();
        vec![line.clone(); found]
    };
    memory.iter().flat_map(finder).collect()
}

#[test]
fn no_key_stays_on_the_main_stack() {
    let stage = Stage::on_devnet();
    assert_eq!(stage.ready().status, 200, "it is about to write");
    let Some(memory) = memory(stage.edge.process()) else { return };
    for role in ["owner", "verifier", "faucet"] {
        let text = fs::read_to_string(devnet::network().file(&format!("{role}.key")))
            .expect("a key of the network");
        let key = Felt::parse(text.trim()).expect("a felt").to_bytes_be();
        let (mut reversed, text) = (key, text.trim().as_bytes());
        reversed.reverse();
        let found = places(&memory, &key);
        assert!(!found.is_empty(), "{role}: it is in its locked page");
        for (form, found) in [
            ("big-endian", found),
            ("little-endian", places(&memory, &reversed)),
            ("text", places(&memory, text)),
        ] {
            let is_left = found.iter().any(|mapping| mapping.contains("[stack]"));
            assert!(!is_left, "{role}, {form}: {found:?}");
        }
    }
}
