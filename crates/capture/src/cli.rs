//! The command line.

use clap::{ArgGroup, Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Records what the host does while a GPU job runs.
#[derive(Debug, Parser)]
#[command(
    name = "ingero-capture",
    version,
    about,
    after_help = "\
Examples:
  sudo ingero-capture check
  sudo ingero-capture record -o trace.duckdb -- python train.py
  sudo ingero-capture record -o trace.duckdb --pid 1234 --duration 30
Then ask for the diagnosis:
  ingero-mcp --db trace.duckdb explain"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Records a command from its start, or a running process, with all their children.
    ///
    /// The recording ends when the command or the process ends; children that outlive it are no
    /// longer recorded. The first Ctrl-C stops the command, a second one the recorder.
    /// The exit status is that of the command; 125 if the recorder failed, 126 if the command
    /// cannot be run, 127 if it is not found.
    Record(Record),
    /// Tells what can be recorded on this machine, what not, why, and what to do about it.
    ///
    /// Loads and attaches the kernel programs for a moment, and tries each on the recorder itself.
    /// Works without privileges too, and then says which are missing.
    /// The exit status is 0 if jobs can be recorded, with limits or without, and 1 if not.
    Check(Check),
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Print one JSON object instead: {format, recorder_version, can_record, summary, items},
    /// where an item is {id, title, required, status: "ok" | "limited" | "missing", found, advice}.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").required(true).args(["pid", "command"]))]
pub(crate) struct Record {
    /// The trace to write: NAME.duckdb, with a folder NAME.events beside it.
    #[arg(short, long, value_name = "NAME.duckdb")]
    pub(crate) output: PathBuf,

    /// Record this process, its threads and its children.
    #[arg(long, value_name = "PID", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,

    /// End the recording after this time; a recorded command goes on running.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = parse_seconds)]
    pub(crate) duration: Option<Duration>,

    /// The command to run and record, as the user who called sudo.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// 31 years; larger numbers would not fit into every clock.
const LONGEST_S: f64 = 1e9;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    if seconds > 0.0 && seconds <= LONGEST_S {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!(
            "must be more than 0 and at most {LONGEST_S} seconds"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Record, clap::error::ErrorKind> {
        let arguments = ["ingero-capture", "record"].iter().chain(arguments);
        match Cli::try_parse_from(arguments) {
            Ok(Cli {
                command: Command::Record(record),
            }) => Ok(record),
            Ok(_) => unreachable!("`record` was asked for"),
            Err(error) => Err(error.kind()),
        }
    }

    #[test]
    fn a_command_keeps_its_own_flags() {
        let record = parse(&["-o", "t.duckdb", "--", "python", "-c", "x"]).unwrap();
        assert_eq!(record.command, ["python", "-c", "x"]);
    }

    #[test]
    fn exactly_one_target() {
        use clap::error::ErrorKind::{ArgumentConflict, MissingRequiredArgument, ValueValidation};
        let error = |arguments: &[&str]| parse(arguments).unwrap_err();
        assert_eq!(error(&["-o", "t.duckdb"]), MissingRequiredArgument);
        assert_eq!(
            error(&["-o", "t.duckdb", "--pid", "1", "--", "true"]),
            ArgumentConflict
        );
        assert_eq!(error(&["-o", "t.duckdb", "--pid", "0"]), ValueValidation);
        assert_eq!(
            error(&["-o", "t.duckdb", "--pid", "1", "--duration", "0"]),
            ValueValidation
        );
        assert_eq!(
            error(&["-o", "t.duckdb", "--pid", "1", "--duration", "NaN"]),
            ValueValidation
        );
    }
}
