//! Remedies for refused requests: `error.data.hint`.
//!
//! In: the method, the path, a parameter or the header fields of a refused request. Out: the
//! remedy, as one sentence for people. Only refused requests get here, so speed does not matter;
//! names are bounded.

use crate::head::Head;
use crate::nearest::nearest;
use crate::rpc::{Method, MethodSet, ParamError};
use crate::verdict::Refusal;
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use http::header;

/// A hint: a constant, or a sentence that names a method.
pub(super) type Hint = Cow<'static, str>;

/// For a read at the relay.
const READ: &str = "the relay takes starknet_addInvokeTransaction and \
     starknet_addDeployAccountTransaction; send reads to the gateway";
/// For a signed transaction at the gateway.
const WRITE: &str = "send signed transactions to the product's backend, which submits them through \
     the relay";
/// For the declaration of a class, at either surface.
const DECLARE: &str = "classes are declared by the operator, directly at the node: neither the \
     gateway nor the relay takes DECLARE";
/// For a subscription, or for the opening of a WebSocket.
const POLL: &str = "there is no WebSocket: poll starknet_blockNumber, about once a second, and \
     read what is new";
const POST: &str = "send the call as JSON by POST, with Content-Type: application/json";
const VERSION: &str = "use /rpc, without a version: starknet_specVersion returns the version of \
     the Starknet API that is served there";
const QUERY: &str = "use /rpc without a query";
const SLASH: &str = "use /rpc without a slash at its end";
const TAG: &str = "the tag is pre_confirmed since version 0.9 of the Starknet API; starknet.js 8 \
     and starknet-rs 0.17, or later, send it";
const PATH: &str = "use /rpc: it is the only path for JSON-RPC";

/// Names the version that the node serves, if the remedy is to leave a version out.
pub fn name_version(refusal: &mut Refusal, version: &str) {
    if refusal.hint.as_deref() == Some(VERSION) {
        let hint = format!(
            "use /rpc, without a version: version {version} of the Starknet API is served there"
        );
        refusal.hint = Some(hint.into());
    }
}

/// The remedy for a refused parameter.
pub(super) fn instead_of_param(error: ParamError) -> Option<Hint> {
    match error {
        ParamError::FormerTag(..) => Some(TAG.into()),
        _ => None,
    }
}

/// The remedy for a path that the gateway does not have.
pub(super) fn instead_of_path(head: &Head<'_>) -> Option<Hint> {
    let target = head.target;
    let names_version = || {
        target
            .windows(3)
            .any(|part| matches!(part, [b'/', b'v', b'0'..=b'9']))
    };
    let hint = match target {
        _ if opens_websocket(head) || target.ends_with(b"/ws") => POLL,
        _ if names_version() => VERSION,
        b"/rpc/" => SLASH,
        _ if target.starts_with(b"/rpc?") => QUERY,
        _ if target
            .get(..4)
            .is_some_and(|path| path.eq_ignore_ascii_case(b"/rpc")) =>
        {
            PATH
        }
        _ => return None,
    };
    Some(hint.into())
}

/// The remedy for a request with an HTTP method other than POST.
pub(super) fn instead_of_verb(head: &Head<'_>) -> Hint {
    if opens_websocket(head) {
        POLL.into()
    } else {
        POST.into()
    }
}

/// Whether the request opens a WebSocket: RFC 6455, section 4.1.
fn opens_websocket(head: &Head<'_>) -> bool {
    let upgrade = head.headers.get(header::UPGRADE);
    upgrade.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
        || head.headers.contains_key(header::SEC_WEBSOCKET_KEY)
}

/// The remedy for a method that the relay does not have.
pub(super) fn instead_of_write(method: &str) -> Hint {
    if method == "starknet_addDeclareTransaction" {
        DECLARE.into()
    } else {
        READ.into()
    }
}

/// The remedy for a method that the gateway, which has the methods `served`, does not have.
pub(super) fn instead_of(method: &str, served: &MethodSet) -> Hint {
    if let Some(hint) = of_starknet(method).or_else(|| of_family(method)) {
        return hint.into();
    }
    let names = Method::ALL
        .into_iter()
        .filter(|method| served.contains(*method))
        .map(Method::name);
    match nearest(method.trim(), names.clone(), core, distance) {
        Some(near) => format!("did you mean {near}?").into(),
        None => format!("the methods are {}", names.collect::<Vec<_>>().join(", ")).into(),
    }
}

/// The remedy for a method of the Starknet API.
fn of_starknet(method: &str) -> Option<&'static str> {
    Some(match method.strip_prefix("starknet_")? {
        "getBlockWithTxs" => {
            "SDKs call it to choose a tip. Set the tip to 0 (starknet.js: `tip: 0n`, \
             starknet.go: `CustomTip: \"0x0\"`, starknet-rs: `.tip(0)`, starknet.py: no \
             `auto_estimate_tip`), or read starknet_getBlockWithTxHashes"
        }
        "getBlockWithReceipts" => {
            "read starknet_getBlockWithTxHashes, then starknet_getTransactionReceipt of each"
        }
        "blockHashAndNumber" => "read starknet_getBlockWithTxHashes at \"latest\": it has both",
        "getBlockTransactionCount" => {
            "read starknet_getBlockWithTxHashes and count its transactions"
        }
        "getTransactionByBlockIdAndIndex" => {
            "read starknet_getBlockWithTxHashes, then starknet_getTransactionByHash"
        }
        "getEvents" => {
            "starknet_getTransactionReceipt has the events of one transaction, and \
             starknet_getBlockWithTxHashes the transactions of a block"
        }
        "traceTransaction" | "traceBlockTransactions" => {
            "starknet_getTransactionReceipt has a transaction's events, messages, fee and reason \
             of a revert"
        }
        "getMessagesStatus" => {
            "read starknet_getTransactionStatus of the transaction that handles the message"
        }
        "getStateUpdate" => {
            "read what may have changed at the block: starknet_getNonce, \
             starknet_getClassHashAt or starknet_call"
        }
        "syncing" => {
            "read starknet_getBlockWithTxHashes at \"latest\": its timestamp shows how far the \
             node is"
        }
        "getStorageAt" | "getStorageProof" => "read it by starknet_call of a view function",
        "simulateTransactions" => "starknet_estimateFee executes it, and returns the fees",
        "getCompiledCasm" => "read starknet_getClass",
        "addDeclareTransaction" => DECLARE,
        name if name.starts_with("add") => WRITE,
        name if name.starts_with("subscri") || name.starts_with("unsubscri") => POLL,
        _ => return None,
    })
}

/// The remedy for a node's own method, or for one of another chain.
fn of_family(method: &str) -> Option<&'static str> {
    let (family, name) = method.split_once('_')?;
    Some(match (family, name) {
        ("devnet", _) => "the methods of the node's administration are not served",
        ("eth", "chainId") | ("net", "version") => "this is Starknet: use starknet_chainId",
        ("eth", "blockNumber") => "this is Starknet: use starknet_blockNumber",
        ("eth", "call" | "getBalance") => "this is Starknet: use starknet_call",
        ("eth", "estimateGas" | "gasPrice" | "feeHistory") => {
            "this is Starknet: use starknet_estimateFee"
        }
        ("eth", "getTransactionCount") => "this is Starknet: use starknet_getNonce",
        ("eth", "getCode") => "this is Starknet: use starknet_getClassAt",
        ("eth", "getBlockByNumber" | "getBlockByHash") => {
            "this is Starknet: use starknet_getBlockWithTxHashes"
        }
        ("eth", "getTransactionByHash") => "this is Starknet: use starknet_getTransactionByHash",
        ("eth", "getTransactionReceipt") => "this is Starknet: use starknet_getTransactionReceipt",
        ("eth", "sendRawTransaction" | "sendTransaction") => WRITE,
        ("eth", "subscribe") => POLL,
        ("eth" | "net" | "web3" | "wallet" | "zks", _) => {
            "this is Starknet, not an EVM chain: the names of all methods begin with starknet_"
        }
        _ => return None,
    })
}

/// A method's name without the prefix that all of them share.
fn core(name: &str) -> &str {
    name.strip_prefix("starknet")
        .unwrap_or(name)
        .trim_start_matches(['_', '.', '-'])
}

/// The number of letters to insert, drop or replace (Levenshtein), ignoring the case of `to`.
fn distance(from: &str, to: &str) -> usize {
    let to = to.to_ascii_lowercase();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, letter) in from.bytes().enumerate() {
        // the cell above to the left, and the cell to the left
        let (mut corner, mut left) = (at, at.saturating_add(1));
        row.splice(..1, [left]);
        for (other, cell) in to.bytes().zip(row.iter_mut().skip(1)) {
            let replaced = corner.saturating_add(usize::from(letter != other));
            corner = *cell;
            left = replaced
                .min(corner.saturating_add(1))
                .min(left.saturating_add(1));
            *cell = left;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Reason;
    use http::{HeaderMap, HeaderValue, Version};

    fn head<'a>(method: &'a str, target: &'a str, headers: &'a HeaderMap) -> Head<'a> {
        let (version, target) = (Version::HTTP_11, target.as_bytes());
        Head {
            method,
            target,
            version,
            headers,
            raw: b"",
            peer: None,
        }
    }

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |name, value| {
            (
                header::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        fields
            .iter()
            .map(|(name, value)| field(name, value))
            .collect()
    }

    #[test]
    fn another_path_gets_its_remedy() {
        let headers = HeaderMap::new();
        for (target, expected) in [
            ("/rpc/", Some(SLASH)),
            ("/rpc?key=1", Some(QUERY)),
            ("/rpc/main", Some(PATH)),
            ("/RPC", Some(PATH)),
            ("/rpc/v0_8", Some(VERSION)),
            ("/v0_8/rpc/", Some(VERSION)),
            ("/rpc?via=/v1", Some(VERSION)),
            ("/rpc/vx", Some(PATH)),
            ("/ws", Some(POLL)),
            ("/rpc/v0_8/ws", Some(POLL)),
            ("/", None),
            ("/metrics", None),
        ] {
            let hint = instead_of_path(&head("POST", target, &headers));
            assert_eq!(hint.as_deref(), expected, "{target}");
        }
    }

    #[test]
    fn only_the_hint_about_versions_names_one() {
        let refusal = |hint: &'static str| {
            Refusal::new(Reason::NotFound, "no such path").with_hint(Cow::Borrowed(hint))
        };
        let mut versioned = refusal(VERSION);
        name_version(&mut versioned, "0.9.0");
        let hint = versioned.hint.expect("it had one");
        assert!(hint.contains("version 0.9.0 of the"), "{hint}");
        let mut slashed = refusal(SLASH);
        name_version(&mut slashed, "0.9.0");
        assert_eq!(slashed.hint.as_deref(), Some(SLASH));
    }

    #[test]
    fn a_websocket_is_replaced_by_polls() {
        for (fields, expected, why) in [
            (&[("upgrade", "WebSocket")][..], POLL, "in any case"),
            (
                &[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")],
                POLL,
                "over HTTP/2",
            ),
            (&[("upgrade", "h2c")], POST, "another protocol"),
            (&[], POST, "a plain request"),
        ] {
            let headers = headers(fields);
            assert_eq!(
                instead_of_verb(&head("GET", "/rpc", &headers)),
                expected,
                "{why}"
            );
            let elsewhere = instead_of_path(&head("GET", "/socket", &headers));
            assert_eq!(
                elsewhere.as_deref(),
                (expected == POLL).then_some(POLL),
                "{why}"
            );
        }
    }

    #[test]
    fn the_relay_names_who_takes_the_rest() {
        for (method, expected) in [
            ("starknet_addDeclareTransaction", DECLARE),
            ("starknet_blockNumber", READ),
            ("xyzzy", READ),
        ] {
            assert_eq!(instead_of_write(method), expected, "{method}");
        }
    }

    #[test]
    fn each_unserved_method_gets_its_remedy() {
        let served = MethodSet::new(&Method::ALL);
        for (methods, remedy) in [
            ("starknet_getBlockWithTxs", "Set the tip to 0"),
            (
                "starknet_getBlockWithReceipts",
                "then starknet_getTransactionReceipt of each",
            ),
            (
                "starknet_blockHashAndNumber",
                "starknet_getBlockWithTxHashes at \"latest\"",
            ),
            (
                "starknet_getBlockTransactionCount",
                "count its transactions",
            ),
            (
                "starknet_getTransactionByBlockIdAndIndex",
                "then starknet_getTransactionByHash",
            ),
            ("starknet_getEvents", "has the events of one transaction"),
            (
                "starknet_traceTransaction starknet_traceBlockTransactions",
                "reason of a revert",
            ),
            (
                "starknet_getMessagesStatus",
                "read starknet_getTransactionStatus",
            ),
            ("starknet_getStateUpdate", "what may have changed"),
            ("starknet_syncing", "its timestamp"),
            (
                "starknet_getStorageAt starknet_getStorageProof",
                "of a view function",
            ),
            (
                "starknet_simulateTransactions",
                "starknet_estimateFee executes it",
            ),
            ("starknet_getCompiledCasm", "read starknet_getClass"),
            ("starknet_addDeclareTransaction", DECLARE),
            (
                "starknet_addInvokeTransaction starknet_addDeployAccountTransaction",
                WRITE,
            ),
            (
                "starknet_subscribeNewHeads starknet_unsubscribe eth_subscribe",
                POLL,
            ),
            ("eth_sendRawTransaction eth_sendTransaction", WRITE),
            ("devnet_mint devnet_restart", "the node's administration"),
            ("eth_chainId net_version", "use starknet_chainId"),
            ("eth_blockNumber", "use starknet_blockNumber"),
            ("eth_call eth_getBalance", "use starknet_call"),
            (
                "eth_estimateGas eth_gasPrice eth_feeHistory",
                "use starknet_estimateFee",
            ),
            ("eth_getTransactionCount", "use starknet_getNonce"),
            ("eth_getCode", "use starknet_getClassAt"),
            (
                "eth_getBlockByNumber eth_getBlockByHash",
                "use starknet_getBlockWithTxHashes",
            ),
            (
                "eth_getTransactionByHash",
                "use starknet_getTransactionByHash",
            ),
            (
                "eth_getTransactionReceipt",
                "use starknet_getTransactionReceipt",
            ),
            (
                "eth_syncing net_listening web3_sha3 wallet_addChain zks_L1ChainId",
                "not an EVM",
            ),
        ] {
            for method in methods.split(' ') {
                let hint = instead_of(method, &served);
                assert!(hint.contains(remedy), "{method}: {hint}");
            }
        }
    }

    #[test]
    fn distances_count_letters() {
        for (from, to, expected, why) in [
            ("", "", 0, "nothing"),
            ("", "abc", 3, "all inserted"),
            ("abc", "", 3, "all dropped"),
            ("nonce", "nonce", 0, "the same"),
            ("nonce", "nonse", 1, "replaced"),
            ("nonce", "nnce", 1, "dropped"),
            ("nonce", "noonce", 1, "inserted"),
            ("kitten", "sitting", 3, "the textbook's"),
        ] {
            let found = distance(from, to);
            assert_eq!(found, expected, "{from:?} to {to:?}: {why}");
            assert_eq!(distance(to, from), expected, "either way: {why}");
        }
    }

    #[test]
    fn a_name_with_a_mistake_gets_the_method_that_is_meant() {
        let near = |name: &str| {
            let hint = instead_of(name, &MethodSet::new(&Method::ALL));
            let near = hint.strip_prefix("did you mean ")?.strip_suffix('?')?;
            Some(near.to_owned())
        };
        for (name, meant, why) in [
            ("getNonce", Some("starknet_getNonce"), "without its prefix"),
            (
                "starknet_getnonce",
                Some("starknet_getNonce"),
                "in another case",
            ),
            (
                "starknet_getNonc",
                Some("starknet_getNonce"),
                "a letter is missing",
            ),
            (
                "starknet.getNonce",
                Some("starknet_getNonce"),
                "another separator",
            ),
            (
                "starknetGetNonce",
                Some("starknet_getNonce"),
                "no separator",
            ),
            (
                "starknet_chainID",
                Some("starknet_chainId"),
                "as other chains have it",
            ),
            (
                "starknet_getBlockWithTxHash",
                Some("starknet_getBlockWithTxHashes"),
                "singular",
            ),
            (" call ", Some("starknet_call"), "with space"),
            ("starknet_proveTransaction", None, "another method"),
            ("xyzzy", None, "nothing like it"),
            ("", None, "no name"),
        ] {
            assert_eq!(near(name).as_deref(), meant, "{name:?}: {why}");
        }
        assert_eq!(near(&"getNonce".repeat(7)), None, "longer than any");
    }

    #[test]
    fn only_served_methods_are_proposed() {
        let served = MethodSet::new(&[Method::BlockNumber, Method::ChainId]);
        assert_eq!(
            instead_of("blockNumber", &served),
            "did you mean starknet_blockNumber?"
        );
        let listed = "the methods are starknet_chainId, starknet_blockNumber";
        assert_eq!(
            instead_of("starknet_getNonce", &served),
            listed,
            "it is switched off"
        );
    }
}
