//! `portcullis serve`: run the edge until a signal stops it.

use super::ConfigArgument;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use portcullis_base::config::{Config, LogFormat};
use portcullis_base::telemetry::Log;
use portcullis_program::command::{Failure, Outcome, USAGE};
use portcullis_program::process::handover::Program;
use portcullis_program::process::inherited::Inherited;
use portcullis_program::process::lifecycle;
use portcullis_program::process::server;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # as a service
  portcullis serve --config /etc/portcullis/portcullis.toml
  # by hand, with log lines for people
  portcullis serve --config portcullis.toml --log-format text
  # with another value of one key
  PORTCULLIS__LOG__LEVEL=debug portcullis serve --config portcullis.toml

Signals:
  SIGHUP   reloads the configuration and secrets; a mistake changes nothing
  SIGTERM  fails /readyz, waits server.drain_delay, finishes requests in flight, exits
  SIGINT   the same; a second SIGTERM or SIGINT exits immediately
  SIGUSR2  hands over to a replaced program without a pause

Exit codes:
  0  stopped by a signal
  2  an unusable configuration, secret, store or address")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// Format of log lines; overrides the configuration.
    #[arg(long, value_parser = log_format())]
    log_format: Option<LogFormat>,
}

fn log_format() -> impl TypedValueParser<Value = LogFormat> {
    PossibleValuesParser::new(["json", "text"]).map(|name| match &*name {
        "json" => LogFormat::Json,
        _ => LogFormat::Text,
    })
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    lifecycle::block_signals();
    let inherited = Inherited::take().map_err(Failure::usage)?;
    // read now, while the file at the path is the program that runs
    let program = Program::of_this_process().map_err(|error| {
        Failure::internal(format_args!("cannot read the program's own path: {error}"))
    })?;
    let path = arguments.file.path()?;
    let mut config = Config::load(&path, std::env::vars_os())?;
    config.log.format = arguments.log_format.unwrap_or(config.log.format);
    let log = Log::install(&config.log);
    let version = env!("CARGO_PKG_VERSION");
    log::info!(version, config:% = path.display(); "starting");
    let stopped = server::bind(&config, log, inherited).and_then(|mut bound| {
        bound.reload_from(path, config);
        bound.hand_over_to(program);
        bound.run()
    });
    match stopped {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            log::error!("{error}");
            log::logger().flush();
            Ok(ExitCode::from(USAGE))
        }
    }
}
