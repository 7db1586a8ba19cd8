//! What an attacker could read in the memory of a running relay.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use portcullis_filters::felt::Felt;

use crate::support::relay::devnet;
use crate::support::relay::stage::Stage;

/// A mapping of the process: its line in `/proc/PID/maps`, and its bytes.
struct Mapping(String, Vec<u8>);

/// The writable memory of a process, which after `PR_SET_DUMPABLE` the kernel shows to root alone.
fn memory(process: u32) -> Vec<Mapping> {
    let memory = File::open(format!("/proc/{process}/mem")).expect("this test runs as root");
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
    mappings.collect()
}

/// The mappings in which `secret` is found, once for each time.
fn places(memory: &[Mapping], secret: &[u8]) -> Vec<String> {
    let finder = |Mapping(line, bytes): &Mapping| {
        let found = memchr::memmem::find_iter(bytes, secret).count();
        vec![line.clone(); found]
    };
    memory.iter().flat_map(finder).collect()
}

/// The forms in which a key could be left behind.
fn forms(text: &str) -> [(&'static str, Vec<u8>); 3] {
    let key = Felt::parse(text).expect("a felt").to_bytes_be();
    let reversed = key.iter().rev().copied().collect();
    [("big-endian", key.to_vec()), ("little-endian", reversed), ("text", text.into())]
}

#[test]
fn keys_are_in_their_locked_page_alone() {
    let (network, stage, user) = (devnet::network(), Stage::on_devnet(), devnet::funded());
    let (address, key) = (user.address, user.key.public_key());
    let drip = format!(r#"{{"identity":"0x5ca4","recipient":"{address}","public_key":"{key}"}}"#);
    assert_eq!(stage.post("/faucet-drip", drip).status, 200, "a key was used");
    let memory = memory(stage.edge.process());
    for role in ["owner", "verifier", "faucet"] {
        let text = fs::read_to_string(network.file(&format!("{role}.key"))).expect("a key");
        let found = forms(text.trim()).map(|(form, bytes)| (form, places(&memory, &bytes)));
        let all: Vec<_> = found.iter().flat_map(|(_, found)| found).collect();
        assert_eq!(all.len(), 1, "{role}: {found:?}");
    }
}
