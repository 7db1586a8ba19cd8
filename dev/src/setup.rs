//! The chain that `dev` serves: that of a running node, or a network deployed on a node of our own,
//! which may have to be built first.
//!
//! In: the options and the folder. Out: the configuration with the addresses and pins of the chain,
//! and once the edge is bound, the supervisor of the node. Addresses and pins of our own network
//! are known before its node runs.

use super::error::DevError;
use super::greeting::Greeting;
use super::hold::{BUILD_LOG, NODE_LOG};
use super::network::{Network, NetworkError, Verification};
use super::node::{Devnet, Port, StartError};
use super::secrets::Accounts;
use super::supervisor::Supervisor;
use super::{Arguments, content, install, is_of};
use portcullis_base::config::{Config, NodeConfig, NodeUrl};
use portcullis_program::command::output;
use portcullis_program::process::server::Bound;
use std::path::Path;
use std::sync::Arc;

/// The chain that is served.
pub(super) struct Setup {
    url: String,
    /// The URL without parts that may be secret.
    pub(super) shown: String,
    /// The pins for the relay to prove; `None` on an unknown network.
    pub(super) pins: Option<String>,
    node: OwnNode,
    verification: Verification,
}

/// Whether this process runs the node.
enum OwnNode {
    /// This process does not run the node: `--node` names it.
    None,
    /// This process runs the node; `epoch` is that of its chain.
    Running { devnet: Devnet, epoch: String },
    /// The program of the node must be built first.
    Missing(Port),
}

impl Setup {
    /// Sets up the store, and the network unless the node must be built first.
    pub(super) async fn make(arguments: &Arguments, state: &Path) -> Result<Self, DevError> {
        let verification = if arguments.without_v2 {
            Verification::V1
        } else {
            Verification::V2
        };
        let setup = match &arguments.node {
            Some(url) => Self::on(url, state, verification, arguments).await,
            None => Self::of_our_own(state, verification).await,
        }?;
        let new_chain = match &setup.node {
            OwnNode::Running { epoch, .. } => Some(&**epoch),
            OwnNode::None | OwnNode::Missing(_) => None,
        };
        content::fill(state, new_chain)
            .await
            .map_err(|error| DevError::Content(state.to_owned(), error))?;
        Ok(setup)
    }

    async fn on(
        url: &str,
        state: &Path,
        verification: Verification,
        arguments: &Arguments,
    ) -> Result<Self, DevError> {
        let shown = NodeUrl::parse(url).map_err(DevError::NodeUrl)?.shown();
        let network = match Network::on(&reading(url)?, Accounts::in_folder(state)?).await {
            Err(NetworkError::Unreachable(cause)) => {
                return Err(DevError::Unreachable(shown, cause));
            }
            network => network?,
        };
        let is_devnet = network.is_devnet().await?;
        let deploys = arguments.deploy || arguments.prepare;
        if deploys && !is_devnet {
            return Err(DevError::NoDevnet(shown));
        }
        if deploys {
            network.make(verification).await?;
        }
        let pins = deploys.then(|| network.pins());
        Ok(Self {
            url: url.to_owned(),
            shown,
            pins,
            node: OwnNode::None,
            verification,
        })
    }

    async fn of_our_own(state: &Path, verification: Verification) -> Result<Self, DevError> {
        let port = Port::reserve()?;
        let url = port.url();
        let network = Network::of_our_own(&reading(&url)?, Accounts::in_folder(state)?);
        let node = match install::find() {
            None if !install::has_cargo() => return Err(StartError::NoCargo.into()),
            None => OwnNode::Missing(port),
            Some(program) => {
                let (shown, address) = (program.display(), port.address);
                output::notice(format_args!("starting {shown} on {address} ..."));
                let devnet = Devnet::start(program, port, &state.join(NODE_LOG)).await?;
                network.make(verification).await?;
                OwnNode::Running {
                    devnet,
                    epoch: network.epoch().await?,
                }
            }
        };
        let pins = Some(network.pins());
        Ok(Self {
            shown: url.clone(),
            url,
            pins,
            node,
            verification,
        })
    }

    /// Fills in the template.
    pub(super) fn configuration(&self, template: &str, state: &Path) -> String {
        let text = template.replace("NODE_URL", &self.url);
        let text = text.replace("STATE", &state.display().to_string());
        if let Some(pins) = &self.pins {
            return text.replace("# PINS\n", pins);
        }
        let (before, rest) = text.split_once("[relay]\n").unwrap_or((&text, ""));
        let after = rest
            .find("[sidecar]\n")
            .and_then(|end| rest.get(end..))
            .unwrap_or_default();
        format!("{before}{after}")
    }

    /// Prints the greeting, now or once a missing node is built and runs. Returns the supervisor of
    /// a node of our own.
    pub(super) fn supervise(
        self,
        greeting: &Greeting,
        bound: &Bound,
        state: &Path,
    ) -> Option<Supervisor> {
        let Self {
            url,
            node,
            verification,
            ..
        } = self;
        let text = greeting.text(bound);
        let state = state.to_owned();
        let deploy = {
            let state = state.clone();
            async move || {
                let network = Network::of_our_own(&reading(&url)?, Accounts::in_folder(&state)?);
                Ok(network.make(verification).await?)
            }
        };
        match node {
            OwnNode::None => {
                output::show(text);
                None
            }
            OwnNode::Running { devnet, .. } => {
                output::show(text);
                Some(Supervisor::watch(async move || Ok(devnet), deploy))
            }
            OwnNode::Missing(port) => {
                output::show(greeting.without_node(bound));
                let node = bound.node();
                node.set_start(Some("building starknet-devnet".to_owned()));
                let first = {
                    let deploy = deploy.clone();
                    async move || {
                        let building = Arc::clone(&node);
                        let report = move |progress| building.set_start(Some(progress));
                        let program = install::install(&state.join(BUILD_LOG), report).await;
                        let program = program.map_err(StartError::from)?;
                        node.set_start(Some("starting starknet-devnet".to_owned()));
                        let devnet = Devnet::start(program, port, &state.join(NODE_LOG)).await?;
                        deploy().await?;
                        node.set_start(None);
                        output::show(text);
                        Ok(devnet)
                    }
                };
                Some(Supervisor::watch(first, deploy))
            }
        }
    }
}

/// A node at this URL, with the certificates and the header that the environment names.
fn reading(url: &str) -> Result<NodeConfig, DevError> {
    let text = format!("[node]\nurl = \"{url}\"\n[admin]\n");
    let env =
        std::env::vars_os().filter(|(name, _)| is_of(name, "NODE") && !is_of(name, "NODE__URL"));
    Ok(Config::parse(&text, env)?.node)
}
