//! Typed calls to the node, for the relay.
//!
//! In: addresses, selectors, transactions. Out: typed answers, or an [`RpcError`]: the node's own
//! error with its code, or why there is no answer. State is read at the block being built, so that
//! a write is visible as soon as the node has accepted it. Starknet API 0.10.

use super::{Call, ConnectionChoice, NodeClient, NodeError, Route};
use portcullis_filters::felt::Felt;
use portcullis_filters::tx::Bounds;
pub use portcullis_filters::txm::node::{Block, ErrorObject, ListedBlock, Receipt, Sender, code};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcError {
    /// No verified answer.
    Node(NodeError),
    /// The node answered with an error.
    Returned(ErrorObject),
    /// The result does not match the method.
    MalformedAnswer,
}

/// Calls to one URL of the node only.
#[derive(Clone, Copy)]
pub struct UrlOf<'a> {
    chain: &'a Chain,
    url: usize,
}

/// How a call was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallTrace {
    /// How long the node took.
    pub took: Duration,
    /// [`super::Answer::node`], if there was an answer.
    pub node: Option<usize>,
}

/// Typed calls to the node.
pub struct Chain(pub NodeClient);

impl Chain {
    /// The chain's id.
    ///
    /// # Errors
    /// Returns an [`RpcError`], as every call does.
    pub async fn chain_id(&self) -> Result<Felt, RpcError> {
        felt(&self.ask("starknet_chainId", "[]").await?)
    }

    /// The version of the API that the node serves.
    pub async fn spec_version(&self) -> Result<String, RpcError> {
        let version = self.ask("starknet_specVersion", "[]").await?;
        version
            .as_str()
            .map(str::to_owned)
            .ok_or(RpcError::MalformedAnswer)
    }

    /// The class hash of the contract at `address`, if there is one.
    pub async fn class_hash_at(&self, address: Felt) -> Result<Option<Felt>, RpcError> {
        found(
            self.ask("starknet_getClassHashAt", &account_params(address))
                .await,
            code::CONTRACT_NOT_FOUND,
        )?
        .as_ref()
        .map(felt)
        .transpose()
    }

    /// Calls a view function of a contract.
    pub async fn call(
        &self,
        to: Felt,
        selector: Felt,
        args: &[Felt],
    ) -> Result<Vec<Felt>, RpcError> {
        let args: Vec<_> = args.iter().map(|arg| format!("\"{arg}\"")).collect();
        let params = format!(
            r#"{{"request":{{"contract_address":"{to}","entry_point_selector":"{selector}","calldata":[{}]}},"block_id":"pre_confirmed"}}"#,
            args.join(",")
        );
        let result = self.ask("starknet_call", &params).await?;
        result
            .as_array()
            .ok_or(RpcError::MalformedAnswer)?
            .iter()
            .map(felt)
            .collect()
    }

    /// The next nonce of an account.
    pub async fn nonce(&self, account: Felt) -> Result<u64, RpcError> {
        read_nonce(
            self.ask("starknet_getNonce", &account_params(account))
                .await,
        )
    }

    /// The newest accepted block.
    pub async fn head(&self) -> Result<Block, RpcError> {
        self.block("\"latest\"", Route::HeadOfPrimary).await
    }

    /// The block that identifies the chain: block 0, unless `node.anchor` names another.
    pub async fn anchor(&self) -> Result<Block, RpcError> {
        let id = format!(r#"{{"block_number":{}}}"#, self.0.shared().anchor());
        self.block(&id, Route::Primary).await
    }

    /// The chain's epoch: hash and timestamp of the block that identifies it. A test network that
    /// starts again has another timestamp there, even if the hash is the same.
    pub async fn epoch(&self) -> Result<String, RpcError> {
        let anchor = self.anchor().await?;
        Ok(format!("{}@{}", anchor.hash, anchor.timestamp))
    }

    async fn block(&self, id: &str, route: Route) -> Result<Block, RpcError> {
        let params = format!(r#"{{"block_id":{id}}}"#);
        let block = self
            .ask_by(route, "starknet_getBlockWithTxHashes", &params)
            .await?;
        Ok(Block {
            number: integer(&block["block_number"])?,
            hash: felt(&block["block_hash"])?,
            timestamp: integer(&block["timestamp"])?,
        })
    }

    /// Estimates the amount and price of each resource that `transaction` would use. It is signed,
    /// of the query version, and in JSON.
    pub async fn estimate(&self, transaction: &str) -> Result<Bounds, RpcError> {
        let params = format!(
            r#"{{"request":[{transaction}],"simulation_flags":[],"block_id":"pre_confirmed"}}"#
        );
        let estimates = self.ask("starknet_estimateFee", &params).await?;
        let of = |resource: &str| {
            let amount = wide(&estimates[0][format!("{resource}_consumed")])?;
            let price = wide(&estimates[0][format!("{resource}_price")])?;
            Ok((
                u64::try_from(amount).map_err(|_| RpcError::MalformedAnswer)?,
                price,
            ))
        };
        Ok(Bounds {
            l1_gas: of("l1_gas")?,
            l1_data_gas: of("l1_data_gas")?,
            l2_gas: of("l2_gas")?,
        })
    }

    /// Submits a transaction with the named `params` of `method`. Returns its hash, and writes to
    /// `trace` how long that took and which URL answered. [`code::DEVNET`] from a node that is no
    /// devnet is a malformed answer.
    pub async fn add(
        &self,
        method: &str,
        params: &str,
        traceparent: Option<&[u8]>,
        trace: &mut CallTrace,
    ) -> Result<Felt, RpcError> {
        // if it were sent twice, the second could fail because the first used the nonce
        let connection = ConnectionChoice::Once;
        let result = self
            .ask_in(
                method,
                params,
                Route::Primary,
                connection,
                traceparent,
                trace,
            )
            .await;
        if let Err(RpcError::Returned(error)) = &result
            && error.code == code::DEVNET
            && self.ask("devnet_getConfig", "[]").await.is_err()
        {
            return Err(RpcError::MalformedAnswer);
        }
        felt(&result?["transaction_hash"])
    }

    /// The receipt of a transaction, if there is one. A receipt that was read before does not
    /// disappear, unless its block was rolled back.
    ///
    /// # Errors
    /// Returns [`NodeError::Lagging`] if the node is behind what was read before.
    pub async fn receipt(&self, hash: Felt) -> Result<Option<Receipt>, RpcError> {
        let params = format!(r#"{{"transaction_hash":"{hash}"}}"#);
        let route = Route::Transaction(hash);
        read_receipt(
            self.ask_by(route, "starknet_getTransactionReceipt", &params)
                .await,
        )
    }

    /// Calls one URL only.
    pub fn url(&self, url: usize) -> UrlOf<'_> {
        UrlOf { chain: self, url }
    }

    /// Calls any method, with parameters in JSON.
    pub async fn ask(&self, method: &str, params: &str) -> Result<Value, RpcError> {
        self.ask_by(Route::Primary, method, params).await
    }

    async fn ask_by(&self, route: Route, method: &str, params: &str) -> Result<Value, RpcError> {
        let mut trace = CallTrace::default();
        self.ask_in(
            method,
            params,
            route,
            ConnectionChoice::Pooled,
            None,
            &mut trace,
        )
        .await
    }

    async fn ask_in(
        &self,
        method: &str,
        params: &str,
        route: Route,
        connection: ConnectionChoice,
        traceparent: Option<&[u8]>,
        trace: &mut CallTrace,
    ) -> Result<Value, RpcError> {
        let write = |id: u64, out: &mut Vec<u8>| write_request(id, method, params, out);
        let start = Instant::now();
        let call = Call::new(write, start + self.0.timeout());
        let answer = self
            .0
            .fetch(call.by(route).over(connection).traced(traceparent))
            .await;
        trace.took = start.elapsed();
        trace.node = answer.as_ref().ok().and_then(|answer| answer.node);
        let answer = answer.map_err(RpcError::Node)?;
        let value =
            serde_json::from_slice(&answer.payload).map_err(|_| RpcError::MalformedAnswer)?;
        if answer.is_result() {
            if route == Route::HeadOfPrimary {
                self.0.shared().note_head(answer.node, &value);
            }
            Ok(value)
        } else {
            Err(RpcError::Returned(read_error(&value)))
        }
    }
}

impl UrlOf<'_> {
    /// The number of the URL's newest accepted block.
    ///
    /// # Errors
    /// Returns an [`RpcError`], as every call does.
    pub async fn head(self) -> Result<u64, RpcError> {
        let block = self
            .ask("starknet_getBlockWithTxHashes", r#"{"block_id":"latest"}"#)
            .await?;
        integer(&block["block_number"])
    }

    /// The URL's accepted block of this number, if it returns one.
    pub async fn block(self, number: u64) -> Result<Option<ListedBlock>, RpcError> {
        let params = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
        let block = self.ask("starknet_getBlockWithTxHashes", &params).await;
        let Some(block) = found(block, code::BLOCK_NOT_FOUND)? else {
            return Ok(None);
        };
        let status = block["status"].as_str().ok_or(RpcError::MalformedAnswer)?;
        if !is_accepted(status) {
            // a block that is being built has the number of the next accepted one
            return Ok(None);
        }
        if integer(&block["block_number"])? != number {
            return Err(RpcError::MalformedAnswer);
        }
        let transactions = block["transactions"]
            .as_array()
            .ok_or(RpcError::MalformedAnswer)?;
        let transactions = transactions.iter().map(felt).collect::<Result<_, _>>()?;
        Ok(Some(ListedBlock {
            hash: felt(&block["block_hash"])?,
            transactions,
        }))
    }

    /// The hash of the account's transaction with this nonce in the block of this number; `None` if
    /// the URL does not return the block, or the block has no such transaction.
    pub async fn transaction_of(
        self,
        number: u64,
        account: Felt,
        nonce: u64,
    ) -> Result<Option<Felt>, RpcError> {
        let params = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
        let block = self.ask("starknet_getBlockWithReceipts", &params).await;
        let Some(block) = found(block, code::BLOCK_NOT_FOUND)? else {
            return Ok(None);
        };
        let listed = block["transactions"]
            .as_array()
            .ok_or(RpcError::MalformedAnswer)?;
        let stated = |value: &Value| value.as_str().and_then(Felt::parse);
        let is_it = |listed: &&Value| {
            let (transaction, receipt) = (&listed["transaction"], &listed["receipt"]);
            // only its receipt names the account that a transaction deploys
            let sender = stated(&transaction["sender_address"]);
            let sender = sender.or_else(|| stated(&receipt["contract_address"]));
            sender == Some(account) && stated(&transaction["nonce"]) == Some(Felt::from(nonce))
        };
        let found = listed.iter().find(is_it);
        found
            .map(|listed| felt(&listed["receipt"]["transaction_hash"]))
            .transpose()
    }

    /// The next nonce of an account.
    pub async fn nonce(self, account: Felt) -> Result<u64, RpcError> {
        read_nonce(
            self.ask("starknet_getNonce", &account_params(account))
                .await,
        )
    }

    /// The account and the nonce of a transaction, if the URL returns one that an account sent. The
    /// address of an account that is deployed is in the receipt only.
    pub async fn sender(self, hash: Felt) -> Result<Option<Sender>, RpcError> {
        let params = format!(r#"{{"transaction_hash":"{hash}"}}"#);
        let transaction = self.ask("starknet_getTransactionByHash", &params).await;
        let Some(transaction) = found(transaction, code::TRANSACTION_NOT_FOUND)? else {
            return Ok(None);
        };
        let account = if transaction["type"] == "DEPLOY_ACCOUNT" {
            let receipt = self.ask("starknet_getTransactionReceipt", &params).await?;
            felt(&receipt["contract_address"])?
        } else if transaction["sender_address"].is_null() {
            // a message from L1, or of a version that names no account
            return Ok(None);
        } else {
            felt(&transaction["sender_address"])?
        };
        let nonce = felt(&transaction["nonce"])?.to_u64();
        Ok(Some(Sender {
            account,
            nonce: nonce.ok_or(RpcError::MalformedAnswer)?,
        }))
    }

    /// The receipt of a transaction, if the URL returns one.
    pub async fn receipt(self, hash: Felt) -> Result<Option<Receipt>, RpcError> {
        let params = format!(r#"{{"transaction_hash":"{hash}"}}"#);
        read_receipt(self.ask("starknet_getTransactionReceipt", &params).await)
    }

    async fn ask(self, method: &str, params: &str) -> Result<Value, RpcError> {
        let mut trace = CallTrace::default();
        let route = Route::Url(self.url);
        self.chain
            .ask_in(
                method,
                params,
                route,
                ConnectionChoice::Pooled,
                None,
                &mut trace,
            )
            .await
    }
}

/// The parameters of a read about an account, at the block being built.
fn account_params(account: Felt) -> String {
    format!(r#"{{"block_id":"pre_confirmed","contract_address":"{account}"}}"#)
}

fn read_nonce(answer: Result<Value, RpcError>) -> Result<u64, RpcError> {
    felt(&answer?)?.to_u64().ok_or(RpcError::MalformedAnswer)
}

fn read_error(error: &Value) -> ErrorObject {
    let texts = [
        &error["data"]["revert_error"],
        &error["data"]["execution_error"],
    ];
    let text = texts.into_iter().chain([&error["data"], &error["message"]]);
    let text = text.map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
    let short_reason = text.filter_map(|text| short_reason(&text)).next();
    ErrorObject {
        code: error["code"].as_i64().unwrap_or_default(),
        short_reason,
    }
}

/// The text with which a contract panicked: the last Cairo short string in the node's report, which
/// has the form `0x… ('TEXT')`. Clients get no other part of a report.
pub fn short_reason(report: &str) -> Option<String> {
    let quoted = report.rsplit("('").filter_map(|rest| rest.split_once("')"));
    let is_short = |text: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b" _-.:".contains(&byte);
        (1..=31).contains(&text.len()) && text.bytes().all(allowed)
    };
    // the frame of the entry point only states that an inner call failed
    let is_frame = |text: &&str| *text == "ENTRYPOINT_FAILED";
    quoted
        .map(|(text, _)| text)
        .filter(is_short)
        .find(|text| !is_frame(text))
        .map(str::to_owned)
}

/// Writes the request for `method` with these parameters in JSON.
pub(crate) fn write_request(id: u64, method: &str, params: &str, out: &mut Vec<u8>) {
    let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    out.extend_from_slice(request.as_bytes());
}

/// Whether this status of a block or transaction means that it is accepted.
pub(super) fn is_accepted(status: &str) -> bool {
    status.starts_with("ACCEPTED_ON_")
}

fn read_receipt(answer: Result<Value, RpcError>) -> Result<Option<Receipt>, RpcError> {
    let Some(receipt) = found(answer, code::TRANSACTION_NOT_FOUND)? else {
        return Ok(None);
    };
    let finality = receipt["finality_status"]
        .as_str()
        .ok_or(RpcError::MalformedAnswer)?;
    let outcome = match receipt["execution_status"].as_str() {
        Some("SUCCEEDED") => Ok(()),
        Some("REVERTED") => Err(receipt["revert_reason"].as_str().and_then(short_reason)),
        _ => return Err(RpcError::MalformedAnswer),
    };
    let fee = &receipt["actual_fee"];
    let fee = (fee["unit"] == "FRI")
        .then(|| wide(&fee["amount"]).ok())
        .flatten();
    let accepted = is_accepted(finality);
    let block = receipt["block_number"]
        .as_u64()
        .zip(felt(&receipt["block_hash"]).ok());
    Ok(Some(Receipt {
        accepted,
        outcome,
        fee,
        block: block.filter(|_| accepted),
    }))
}

/// Converts an error with the code `missing` to `None`.
fn found(result: Result<Value, RpcError>, missing: i64) -> Result<Option<Value>, RpcError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(RpcError::Returned(error)) if error.code == missing => Ok(None),
        Err(error) => Err(error),
    }
}

fn felt(value: &Value) -> Result<Felt, RpcError> {
    value
        .as_str()
        .and_then(Felt::parse)
        .ok_or(RpcError::MalformedAnswer)
}

fn integer(value: &Value) -> Result<u64, RpcError> {
    value.as_u64().ok_or(RpcError::MalformedAnswer)
}

fn wide(value: &Value) -> Result<u128, RpcError> {
    felt(value)?.to_u128().ok_or(RpcError::MalformedAnswer)
}
