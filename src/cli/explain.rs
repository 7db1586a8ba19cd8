//! `portcullis explain`: how the gateway or the relay would judge a request, check by check.
//!
//! Runs the policy itself on a request body from a file or standard input, and prints the request
//! that the node would get. Sends nothing, counts no limit and reads no secret; checks that need
//! the chain are marked.

use super::{CHECK_FAILED, ConfigArgument, Failure, Outcome, open};
use crate::config::RelayConfig;
use crate::gateway::Settings;
use crate::relay::settings::policy;
use crate::reply::status_and_code;
use portcullis_filters::bearer::Tokens;
use portcullis_filters::operation::OperationKind;
use portcullis_filters::policy::{
    Endpoint, Finding, GatewayPolicy, Inspected, MAX_BODY, ReadPermit,
};
use portcullis_filters::tx::AllowedCall;
use portcullis_filters::verdict::Refusal;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

#[derive(Debug, clap::Args)]
#[command(after_help = r#"Examples:
  # a read, at the gateway
  portcullis explain --config portcullis.toml request.json
  # the same, from standard input
  echo '{"jsonrpc":"2.0","id":1,"method":"starknet_chainId"}' |
    portcullis explain --config portcullis.toml
  # a user's transaction, at the relay
  portcullis explain --config portcullis.toml --relay /rpc transaction.json
  # an operation
  portcullis explain --config portcullis.toml --relay /mint-card mint.json

Exit codes:
  0  the request would be permitted
  1  the request would be refused
  2  usage, or an unusable configuration or file"#)]
pub(super) struct Arguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// Judge as the relay would at this path, such as /rpc or /mint-card.
    #[arg(long, value_name = "PATH")]
    relay: Option<String>,
    /// A file with the body of the request; - reads it from standard input.
    #[arg(value_name = "REQUEST", default_value = "-")]
    request: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let config = arguments.file.load()?;
    let request = &arguments.request;
    let body = read(request)
        .map_err(|error| Failure::usage(format_args!("{}: {error}", request.display())))?;
    let Some(path) = &arguments.relay else {
        let missing = || Failure::usage("the configuration has no [gateway]");
        let config = config.gateway.ok_or_else(missing)?;
        return Ok(gateway(&Settings::from(&config).policy, &body));
    };
    let config = config.relay.ok_or_else(|| Failure::usage("the configuration has no [relay]"))?;
    let endpoint = match &**path {
        "/rpc" => Some(Endpoint::Rpc),
        path => OperationKind::parse_path(path.as_bytes()).map(Endpoint::Operation),
    };
    let unknown = || Failure::usage(format_args!("the relay serves no POST at {path}"));
    Ok(relay(&config, endpoint.ok_or_else(unknown)?, &body))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    // one byte more than the limit shows that it is too large
    open(path)?.take(MAX_BODY as u64 + 1).read_to_end(&mut body)?;
    Ok(body)
}

fn gateway(policy: &GatewayPolicy, body: &[u8]) -> ExitCode {
    println!("gateway, POST /rpc, {} bytes", body.len());
    match policy.inspect_with(body, found) {
        Ok(permit) => {
            permitted(&permit);
            ExitCode::SUCCESS
        }
        Err(refusal) => refused(&refusal, Endpoint::Rpc),
    }
}

fn permitted(permit: &ReadPermit<'_>) {
    for (name, argument) in permit.params().arguments() {
        detail(&format!("{name} = {argument:?}"));
    }
    let mut request = Vec::new();
    permit.write_request(1, &mut request);
    println!("\nverdict: permitted; request to the node:\n  {}", String::from_utf8_lossy(&request));
}

fn relay(config: &RelayConfig, endpoint: Endpoint, body: &[u8]) -> ExitCode {
    println!("relay, POST /{}, {} bytes", endpoint.name(), body.len());
    // no token is compared here
    let policy = policy(config, Tokens::none());
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    match policy.inspect_with(endpoint, body, now, found) {
        Ok(Inspected::Transaction(unverified)) => {
            to_do("pins", "every pin was proved recently");
            match unverified.sender() {
                Some(sender) => {
                    to_do("class", &format!("{sender} is of class {}", config.pins.account_class));
                    to_do("signature", &format!("by the key of {sender}, over the hash"));
                }
                None => passed("signature", "by the key in it, over the hash"),
            }
            to_do("journal", "a known hash is answered, not sent again");
            println!("\nverdict: permitted if the checks marked ? pass on the chain");
            ExitCode::SUCCESS
        }
        Ok(Inspected::Operation(permit)) => {
            to_do("pins", "every pin was proved recently");
            to_do("state", "the operation is neither done nor impossible");
            println!("\nverdict: permitted if the checks marked ? pass on the chain");
            println!("journal entry:\n  {}", permit.canonical());
            ExitCode::SUCCESS
        }
        Err(refusal) => refused(&refusal, endpoint),
    }
}

fn found(finding: Finding<'_>) {
    match finding {
        Finding::Size(bytes) => passed("size", &format!("{bytes} of {MAX_BODY} bytes")),
        Finding::Envelope(id) => passed("envelope", &format!("JSON-RPC 2.0, id {id}")),
        Finding::Method(method) => passed("method", method),
        Finding::Params(count) => passed("params", &format!("{count}")),
        Finding::Transaction(transaction) => {
            passed("transaction", "version 3, no tip, no paymaster, no proofs, DA on L1");
            detail(&format!("sender = {}", transaction.sender()));
            detail(&format!("nonce = {}", transaction.nonce()));
            let bounds = transaction.bounds();
            for (name, (amount, price)) in [
                ("l1_gas", bounds.l1_gas),
                ("l1_data_gas", bounds.l1_data_gas),
                ("l2_gas", bounds.l2_gas),
            ] {
                detail(&format!("{name} = {amount} at {price} fri"));
            }
        }
        Finding::Calls(calls) => {
            passed("calls", &format!("{} allowed", calls.len()));
            calls.iter().for_each(call);
        }
        Finding::Hash(hash) => passed("hash", &hash.to_string()),
        Finding::Operation(operation) => {
            passed("operation", operation.kind().name());
            detail(&operation.canonical());
        }
    }
}

fn call(call: &AllowedCall) {
    let (contract, entrypoint) = (call.contract().name(), call.entrypoint().name());
    let args: Vec<_> = call.call().args.iter().map(ToString::to_string).collect();
    detail(&format!("{contract}.{entrypoint}({})", args.join(", ")));
}

fn refused(refusal: &Refusal, endpoint: Endpoint) -> ExitCode {
    let (status, code) = status_and_code(refusal.reason);
    println!("  refused  {}: {}", refusal.reason.name(), refusal.message);
    // the body of an operation's response has the reason, and no code
    let code = if endpoint == Endpoint::Rpc { format!(", JSON-RPC {code}") } else { String::new() };
    println!("\nverdict: HTTP {status}{code}; nothing is sent to the node");
    ExitCode::from(CHECK_FAILED)
}

fn passed(check: &str, what: &str) {
    println!("  ok       {check}: {what}");
}

fn to_do(check: &str, what: &str) {
    println!("  ?        {check}: {what}");
}

fn detail(text: &str) {
    println!("             {text}");
}
