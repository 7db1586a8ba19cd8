//! What to do instead of a refused call: `error.data.hint`.

/// Of a read at the relay.
pub(super) const READ: &str = "the relay takes starknet_addInvokeTransaction and \
     starknet_addDeployAccountTransaction; send reads to the gateway";

/// Of another path than `/rpc` that is meant for JSON-RPC.
pub(super) const PATH: &str = "use /rpc: all versions of the API that the node speaks are there";

/// What serves instead of a method that the gateway does not have.
pub(super) fn instead_of(method: &str) -> Option<&'static str> {
    Some(match method {
        "starknet_getBlockWithTxs" => {
            "SDKs call it to choose a tip. Set the tip to 0 (starknet.js: `tip: 0n`, \
             starknet.go: `CustomTip: \"0x0\"`, starknet-rs: `.tip(0)`, starknet.py: no \
             `auto_estimate_tip`), or read starknet_getBlockWithTxHashes"
        }
        "starknet_getBlockWithReceipts" => {
            "read starknet_getBlockWithTxHashes, then starknet_getTransactionReceipt of each"
        }
        "starknet_blockHashAndNumber" => {
            "read starknet_getBlockWithTxHashes at \"latest\": it has both"
        }
        "starknet_getBlockTransactionCount" => {
            "read starknet_getBlockWithTxHashes and count its transactions"
        }
        "starknet_getTransactionByBlockIdAndIndex" => {
            "read starknet_getBlockWithTxHashes, then starknet_getTransactionByHash"
        }
        "starknet_getStorageAt" => "read it by starknet_call of a view function",
        "starknet_simulateTransactions" => "starknet_estimateFee executes it, and returns the fees",
        _ if method.starts_with("starknet_add") => {
            "send signed transactions to the product's backend, which submits them through the \
             relay"
        }
        _ => return None,
    })
}
