//! `portcullis explain`: how the gateway or the relay would judge a request, check by check.
//!
//! Runs the policy itself on a request body from a file or standard input, and prints the request
//! that the node would get. Sends nothing, counts no limit and reads no secret; checks that need
//! the chain are marked.

use super::{ConfigArgument, open};
use portcullis_base::config::RelayConfig;
use portcullis_base::io::clock;
use portcullis_base::io::plain::is_plain;
use portcullis_edge::gateway::Settings;
use portcullis_edge::relay::settings::{Pinned, policy};
use portcullis_filters::bearer::Tokens;
use portcullis_filters::operations::OperationKind;
use portcullis_filters::policy::{
    Endpoint, Finding, GatewayPolicy, Inspected, MAX_BODY, ReadPermit,
};
use portcullis_filters::tx::AllowedCall;
use portcullis_filters::verdict::Refusal;
use portcullis_program::command::{CHECK_FAILED, Failure, Outcome, written};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

#[derive(Debug, clap::Args)]
#[command(after_help = r#"Examples:
  # a read, at the gateway
  portcullis explain --config portcullis.toml request.json
  # a read from standard input
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
        return gateway(&Settings::from(&config.live).policy, &body).print();
    };
    let config = config
        .relay
        .ok_or_else(|| Failure::usage("the configuration has no [relay]"))?;
    let endpoint = match &**path {
        "/rpc" => Some(Endpoint::Rpc),
        path => OperationKind::parse_path(path.as_bytes()).map(Endpoint::Operation),
    };
    let unknown = || Failure::usage(format_args!("the relay serves no POST at {path}"));
    relay(&config, endpoint.ok_or_else(unknown)?, &body).print()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    // one byte more than the limit shows that the body is too large
    open(path)?
        .take(MAX_BODY as u64 + 1)
        .read_to_end(&mut body)?;
    Ok(body)
}

/// The explanation of one request.
struct Explanation {
    text: String,
    code: ExitCode,
}

impl Explanation {
    fn begin(surface: &str, endpoint: Endpoint, body: &[u8]) -> Self {
        let text = format!(
            "{surface}, POST /{}, {} bytes\n",
            endpoint.name(),
            body.len()
        );
        Self {
            text,
            code: ExitCode::SUCCESS,
        }
    }

    fn print(self) -> Outcome {
        written(
            "explain",
            io::stdout().write_all(shown(&self.text).as_bytes()),
        )?;
        Ok(self.code)
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn passed(&mut self, check: &str, what: &str) {
        self.line(&format!("  ok       {check}: {what}"));
    }

    fn pending(&mut self, check: &str, what: &str) {
        self.line(&format!("  ?        {check}: {what}"));
    }

    fn detail(&mut self, text: &str) {
        self.line(&format!("             {text}"));
    }

    fn permitted(&mut self, permit: &ReadPermit<'_>) {
        for (name, argument) in permit.params().arguments() {
            self.detail(&format!("{name} = {argument:?}"));
        }
        let mut request = Vec::new();
        permit.write_request(1, &mut request);
        let request = String::from_utf8_lossy(&request);
        self.line(&format!(
            "\nverdict: permitted; request to the node:\n  {request}"
        ));
    }

    fn permitted_if(&mut self) {
        self.line("\nverdict: permitted if the checks marked ? pass on the chain");
    }

    fn refused(&mut self, refusal: &Refusal, endpoint: Endpoint) {
        let (status, code) = (refusal.reason.status(), refusal.reason.code());
        self.line(&format!(
            "  refused  {}: {}",
            refusal.reason.name(),
            refusal.message
        ));
        // the body of an operation's response has the reason, and no code
        let is_rpc = endpoint == Endpoint::Rpc;
        let code = if is_rpc {
            format!(", JSON-RPC {code}")
        } else {
            String::new()
        };
        self.line(&format!("           do: {}", refusal.reason.remedy()));
        self.line(&format!(
            "\nverdict: HTTP {status}{code}; nothing is sent to the node"
        ));
        self.code = ExitCode::from(CHECK_FAILED);
    }

    fn found(&mut self, finding: Finding<'_>) {
        match finding {
            Finding::Size(bytes) => self.passed("size", &format!("{bytes} of {MAX_BODY} bytes")),
            Finding::Envelope(id) => self.passed("envelope", &format!("JSON-RPC 2.0, id {id}")),
            Finding::Method(method) => self.passed("method", method),
            Finding::Params(count) => self.passed("params", &format!("{count}")),
            Finding::Transaction(transaction) => {
                self.passed(
                    "transaction",
                    "version 3, no tip, no paymaster, no proofs, DA on L1",
                );
                self.detail(&format!("sender = {}", transaction.sender()));
                self.detail(&format!("nonce = {}", transaction.nonce()));
                let bounds = transaction.bounds();
                for (name, (amount, price)) in [
                    ("l1_gas", bounds.l1_gas),
                    ("l1_data_gas", bounds.l1_data_gas),
                    ("l2_gas", bounds.l2_gas),
                ] {
                    self.detail(&format!("{name} = {amount} at {price} fri"));
                }
            }
            Finding::Calls(calls) => {
                self.passed("calls", &format!("{} allowed", calls.len()));
                calls.iter().for_each(|call| self.call(call));
            }
            Finding::Hash(hash) => self.passed("hash", &hash.to_string()),
            Finding::Operation(operation) => {
                self.passed("operation", operation.kind().name());
                self.detail(&operation.canonical());
            }
        }
    }

    fn call(&mut self, call: &AllowedCall) {
        let (contract, entrypoint) = (call.contract().name(), call.entrypoint().name());
        let args: Vec<_> = call.call().args.iter().map(ToString::to_string).collect();
        self.detail(&format!("{contract}.{entrypoint}({})", args.join(", ")));
    }
}

/// The text with an escape in place of each character that changes how a terminal shows others.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) || c == '\n' {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}

fn gateway(policy: &GatewayPolicy, body: &[u8]) -> Explanation {
    let mut explained = Explanation::begin("gateway", Endpoint::Rpc, body);
    match policy.inspect_with(body, |finding| explained.found(finding)) {
        Ok(permit) => explained.permitted(&permit),
        Err(refusal) => explained.refused(&refusal, Endpoint::Rpc),
    }
    explained
}

fn relay(config: &RelayConfig, endpoint: Endpoint, body: &[u8]) -> Explanation {
    let mut explained = Explanation::begin("relay", endpoint, body);
    // no token is compared here
    let policy = policy(&config.live, Tokens::none(), Pinned::new(&config.pins));
    let now = clock::since_1970(SystemTime::now()).as_secs();
    match policy.inspect_with(endpoint, body, now, |finding| explained.found(finding)) {
        Ok(Inspected::Transaction(unverified)) => {
            if let Err(refusal) = unverified.admission() {
                explained.refused(refusal, endpoint);
                return explained;
            }
            explained.pending("pins", "every pin was proved recently");
            match unverified.sender() {
                Some(sender) => {
                    let class = &config.pins.account_class;
                    explained.pending("class", &format!("{sender} is of class {class}"));
                    let key = format!("by the key of {sender}, over the hash");
                    explained.pending("signature", &key);
                }
                None => explained.passed("signature", "by the key in it, over the hash"),
            }
            explained.pending("journal", "a known hash is answered, not sent again");
            explained.permitted_if();
        }
        Ok(Inspected::Operation(permit)) => {
            explained.pending("key", "no earlier write answers the idempotency key");
            if let Err(refusal) = permit.admission() {
                explained.refused(refusal, endpoint);
                return explained;
            }
            explained.pending("pins", "every pin was proved recently");
            explained.pending("state", "the operation is neither done nor impossible");
            explained.permitted_if();
            explained.line(&format!("journal entry:\n  {}", permit.canonical()));
        }
        Err(refusal) => explained.refused(&refusal, endpoint),
    }
    explained
}
