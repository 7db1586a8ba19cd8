//! `portcullis check`: everything that is wrong with a configuration, at once.

use super::{CHECK_FAILED, CheckArguments};
use crate::config::Config;
use std::process::ExitCode;

pub(super) fn run(arguments: &CheckArguments) -> ExitCode {
    match Config::load(&arguments.file.config, std::env::vars_os()) {
        Ok(_) => {
            println!("{}: ok", arguments.file.config.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(CHECK_FAILED)
        }
    }
}
