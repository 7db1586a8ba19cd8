//! `portcullis serve`: run the edge until a signal stops it.

use super::{ServeArguments, USAGE};
use crate::config::Config;
use crate::server;
use crate::telemetry::Log;
use std::process::ExitCode;

pub(super) fn run(arguments: &ServeArguments) -> ExitCode {
    let mut config = match Config::load(&arguments.file.config, std::env::vars_os()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(USAGE);
        }
    };
    if let Some(format) = arguments.log_format {
        config.log.format = format.into();
    }
    let log = Log::install(&config.log);
    match server::bind(&config, log) {
        Ok(mut bound) => {
            bound.reload_from(arguments.file.config.clone(), config);
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
