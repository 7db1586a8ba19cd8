//! `--config`, for every command that reads the configuration.

use portcullis_base::config::{self, Config, LoadError};
use portcullis_program::command::output;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct ConfigArgument {
    /// The configuration, a TOML file; PORTCULLIS__SECTION__KEY variables override it. By default
    /// /etc/portcullis/portcullis.toml, or ./portcullis.toml if that does not exist.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

impl ConfigArgument {
    /// The file: the named one, or a default.
    pub(super) fn path(&self) -> Result<PathBuf, LoadError> {
        self.config.clone().map_or_else(config::default_path, Ok)
    }

    /// Loads the file; reports on standard error which one, unless it was named.
    pub(super) fn load(&self) -> Result<Config, LoadError> {
        let path = self.path()?;
        if self.config.is_none() {
            output::notice(format_args!("portcullis: using {}", path.display()));
        }
        Config::load(&path, std::env::vars_os())
    }
}
