//! `portcullis serve`: run the edge until a signal stops it.

use super::{INTERNAL, ServeArguments, USAGE};
use crate::config::Config;
use crate::process::handover::Program;
use crate::process::inherited::Inherited;
use crate::process::lifecycle;
use crate::process::server;
use crate::telemetry::Log;
use std::process::ExitCode;

pub(super) fn run(arguments: &ServeArguments) -> ExitCode {
    lifecycle::hold_back();
    let inherited = match Inherited::take() {
        Ok(inherited) => inherited,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(USAGE);
        }
    };
    // told now, while what is at the path is what runs
    let program = match Program::of_this_process() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("the program's own path can not be told: {error}");
            return ExitCode::from(INTERNAL);
        }
    };
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
