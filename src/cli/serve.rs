//! `portcullis serve`: run the edge until a signal stops it.

use super::{ConfigArgument, INTERNAL, USAGE, fail};
use crate::config::LogFormat;
use crate::process::handover::Program;
use crate::process::inherited::Inherited;
use crate::process::lifecycle;
use crate::process::server;
use crate::telemetry::Log;
use clap::ValueEnum;
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
    #[arg(long, value_enum)]
    log_format: Option<LogFormatArgument>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormatArgument {
    Json,
    Text,
}

impl From<LogFormatArgument> for LogFormat {
    fn from(format: LogFormatArgument) -> Self {
        match format {
            LogFormatArgument::Json => Self::Json,
            LogFormatArgument::Text => Self::Text,
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    lifecycle::block_signals();
    let inherited = match Inherited::take() {
        Ok(inherited) => inherited,
        Err(error) => return fail(USAGE, error),
    };
    // read now, while the file at the path is the program that runs
    let program = match Program::of_this_process() {
        Ok(program) => program,
        Err(error) => {
            return fail(INTERNAL, format_args!("cannot read the program's own path: {error}"));
        }
    };
    let mut config = match arguments.file.load() {
        Ok(config) => config,
        Err(error) => return fail(USAGE, error),
    };
    if let Some(format) = arguments.log_format {
        config.log.format = format.into();
    }
    let log = Log::install(&config.log);
    match server::bind(&config, log, inherited) {
        Ok(mut bound) => {
            bound.reload_from(arguments.file.config.clone(), config);
            bound.hand_over_to(program);
            bound.run();
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::error!("{error}");
            log::logger().flush();
            ExitCode::from(USAGE)
        }
    }
}
