//! Versions of the Starknet API: which one a node must serve, and where it would.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The version that a node must serve; a third part may follow.
pub const NEEDED: &str = "0.10";
/// Its segment in the paths of Pathfinder, Juno and hosted nodes.
const SEGMENT: &str = "v0_10";

/// Whether a node that reports this version serves the needed one: `0.10`, `0.10.2`, `0.10.4-rc.1`.
pub fn is_needed(version: &str) -> bool {
    match version.strip_prefix(NEEDED) {
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => false,
    }
}

/// The path that serves the needed version at a node whose URL has this path; `None` if the path
/// names it already, or follows no known scheme.
pub fn path_of_needed(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').collect();
    if segments.iter().any(|segment| is_version(segment)) {
        let replaced = segments.iter().map(|segment| {
            if is_version(segment) {
                SEGMENT
            } else {
                segment
            }
        });
        let found = replaced.collect::<Vec<_>>().join("/");
        return Some(found).filter(|found| found != path);
    }
    match path.trim_end_matches('/') {
        "" => Some(format!("/rpc/{SEGMENT}")),
        rpc if rpc.ends_with("/rpc") => Some(format!("{rpc}/{SEGMENT}")),
        _ => None,
    }
}

/// Whether a segment names a version, as `v0_8`, `v0.9` and `v0_7_1` do.
fn is_version(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix("v0") else {
        return false;
    };
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = rest.split(['_', '.']);
    parts.next() == Some("") && rest.len() > 1 && parts.all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_0_10_is_served() {
        for (version, expected) in [
            ("0.10", true),
            ("0.10.0", true),
            ("0.10.2", true),
            ("0.10.4-rc.1", true),
            ("0.8.1", false),
            ("0.9.0", false),
            ("0.1", false),
            ("0.100.0", false),
            ("1.0.10", false),
            ("", false),
        ] {
            assert_eq!(is_needed(version), expected, "{version}");
        }
    }

    #[test]
    fn the_path_of_0_10_follows_the_url() {
        for (path, expected, why) in [
            ("/", Some("/rpc/v0_10"), "Pathfinder's root"),
            ("/rpc", Some("/rpc/v0_10"), "devnet's path"),
            ("/rpc/", Some("/rpc/v0_10"), "with a slash"),
            ("/rpc/v0_8", Some("/rpc/v0_10"), "Pathfinder"),
            ("/v0_8", Some("/v0_10"), "Juno"),
            ("/v0_7_1", Some("/v0_10"), "with a third part"),
            ("/rpc/v0.9/key", Some("/rpc/v0_10/key"), "a key behind it"),
            ("/v3/key", None, "no version of Starknet's"),
            ("/v0", None, "half a version"),
            ("/rpc/v0_10", None, "it is named already"),
            ("/api/key", None, "an unknown scheme"),
        ] {
            assert_eq!(path_of_needed(path).as_deref(), expected, "{why}");
        }
    }
}
