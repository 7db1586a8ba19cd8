//! The report of `check`: one line per finding and a summary, or one JSON object
//! (`conf/operation.md` documents it).
//!
//! Both formats go to standard output as a whole, so a saved report has the mistakes. Only
//! terminals get colours, unless `NO_COLOR` is set.

use super::Arguments;
use clap::builder::styling::{AnsiColor, Style};
use portcullis_base::config::{ConfigError, Origin};
use portcullis_program::command::{CHECK_FAILED, Outcome, written};
use serde::Serialize;
use std::io::{self, Write as _};
use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    Failed,
    Note,
}

/// The subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Configuration,
    File,
    Listener,
    Store,
    Node,
    Pin,
    Authority,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    kind: Kind,
    /// The key, the URL of the node, or the pin.
    subject: String,
    status: Status,
    message: String,
    /// The position of a key's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variable: Option<String>,
    /// The value on the chain, if it is not the expected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
}

impl Finding {
    pub(super) fn new(
        kind: Kind,
        subject: &str,
        status: Status,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            subject: subject.to_owned(),
            status,
            message: message.into(),
            line: None,
            column: None,
            variable: None,
            found: None,
        }
    }

    pub(super) fn ok(kind: Kind, subject: &str, message: impl Into<String>) -> Self {
        Self::new(kind, subject, Status::Ok, message)
    }

    pub(super) fn failed(kind: Kind, subject: &str, message: impl Into<String>) -> Self {
        Self::new(kind, subject, Status::Failed, message)
    }

    /// Adds the value on the chain.
    pub(super) fn with_found(self, found: Option<String>) -> Self {
        Self { found, ..self }
    }

    /// A mistake or a warning of the configuration.
    pub(super) fn of_key(status: Status, error: &ConfigError) -> Self {
        let finding = Self::new(
            Kind::Configuration,
            &error.key,
            status,
            error.message.clone(),
        );
        match &error.origin {
            Origin::File { line, column } => Self {
                line: Some(*line),
                column: Some(*column),
                ..finding
            },
            Origin::Variable(name) => Self {
                variable: Some(name.clone()),
                ..finding
            },
            Origin::Absent => finding,
        }
    }

    /// Formats the position of the value.
    fn origin(&self) -> String {
        match (self.line.zip(self.column), &self.variable) {
            (Some((line, column)), _) => format!("line {line}, column {column}: "),
            (None, Some(name)) => format!("environment variable {name}: "),
            (None, None) => String::new(),
        }
    }

    fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        let (verdict, colour) = match self.status {
            Status::Ok => ("ok", AnsiColor::Green),
            Status::Failed => ("FAILED", AnsiColor::Red),
            Status::Note => ("note", AnsiColor::Yellow),
        };
        let style = Style::new().fg_color(Some(colour.into()));
        let Self {
            subject, message, ..
        } = self;
        let origin = self.origin();
        let line = format!("{subject:<26} {style}{verdict:<7}{style:#}");
        let Some(found) = &self.found else {
            return writeln!(out, "{line} {origin}{message}");
        };
        writeln!(out, "{line} {origin}expected {message}")?;
        writeln!(out, "{:<26} {:<7} found    {found}", "", "")
    }
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    ok: usize,
    failed: usize,
    notes: usize,
}

/// Everything that was checked.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    config: String,
    live: bool,
    /// Whether nothing failed.
    ok: bool,
    summary: Summary,
    checks: Vec<Finding>,
    #[serde(skip)]
    format: Format,
}

impl Report {
    pub(super) fn new(config: String, arguments: &Arguments) -> Self {
        Self {
            config,
            live: arguments.live,
            ok: true,
            summary: Summary::default(),
            checks: Vec::new(),
            format: arguments.format,
        }
    }

    /// Adds a finding; in text, prints it at once.
    pub(super) fn add(&mut self, finding: Finding) {
        match finding.status {
            Status::Ok => self.summary.ok += 1,
            Status::Failed => self.summary.failed += 1,
            Status::Note => self.summary.notes += 1,
        }
        self.ok = self.summary.failed == 0;
        if self.format == Format::Text {
            // an error that persists is reported by `finish`
            let _written = finding.write(&mut anstream::stdout());
        }
        self.checks.push(finding);
    }

    /// Prints the summary, or the JSON object.
    pub(super) fn finish(self) -> Outcome {
        let Summary { ok, failed, notes } = &self.summary;
        let text = match self.format {
            Format::Json => serde_json::to_string_pretty(&self).unwrap_or_default(),
            Format::Text => format!("{}: {ok} ok, {failed} failed, {notes} notes", self.config),
        };
        written("check", writeln!(io::stdout(), "{text}"))?;
        Ok(if self.ok {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(CHECK_FAILED)
        })
    }
}
