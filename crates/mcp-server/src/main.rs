//! The server that lets an assistant ask about a recording, and the same questions from a shell.

mod arguments;
mod cursor;
mod explain;
mod output;
mod prompt;
mod schema;
mod server;
mod session;
mod table;
mod text;
mod tool;
mod tools;

use clap::{Parser, Subcommand};
use ingero_trace::OpenError;
use session::Session;
use std::path::PathBuf;
use std::process::ExitCode;
use tool::ToolError;

/// Exit statuses, those above 2 as in sysexits.h.
mod exit {
    pub(crate) const FAILED: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const BAD_DATA: u8 = 65;
    pub(crate) const NO_INPUT: u8 = 66;
}

/// Answers questions about a recording of a GPU job.
///
/// Without a command it serves the Model Context Protocol on standard input and output: an
/// assistant starts it. The recording is only read, also while it grows.
#[derive(Debug, Parser)]
#[command(name = "ingero-mcp", version, args_conflicts_with_subcommands = false)]
struct Cli {
    /// The recording: trace.duckdb, its events folder, or a packed file
    #[arg(long, value_name = "TRACE")]
    db: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the diagnosis for a person
    Explain,
    /// Ask one tool and print its answer as JSON
    Call {
        /// Name of the tool, e.g. list_processes
        tool: String,
        /// Its arguments as a JSON object, e.g. '{"limit": 5}'
        #[arg(default_value = "{}")]
        arguments: String,
    },
    /// Make one self-contained file of a recording, to share it
    Pack {
        /// The recording
        input: PathBuf,
        /// The file to write; it must not exist
        #[arg(short, long, value_name = "OUT.duckdb")]
        output: PathBuf,
    },
}

/// Why the program ends without success.
#[derive(Debug)]
struct Failure {
    status: u8,
    message: String,
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let status = match error {
            OpenError::Missing(_) => exit::NO_INPUT,
            OpenError::Unreadable { .. } => exit::NO_INPUT,
            OpenError::Start(_) => exit::FAILED,
            _ => exit::BAD_DATA,
        };
        Self {
            status,
            message: error.to_string(),
        }
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self {
            status: exit::FAILED,
            message: error.to_string(),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self {
            status: exit::FAILED,
            message: error.to_string(),
        }
    }
}

fn usage(message: String) -> Failure {
    Failure {
        status: exit::USAGE,
        message,
    }
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The message may hold names from a trace.
            eprintln!("ingero-mcp: {}", text::reason(&failure.message));
            ExitCode::from(failure.status)
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    if let Some(Command::Pack { input, output }) = &cli.command {
        return pack(input, output);
    }
    let path = cli.db.ok_or_else(|| {
        usage("which recording? Give its path: ingero-mcp --db trace.duckdb".to_owned())
    })?;
    let session = Session::open(&path)?;
    match cli.command {
        None => server::serve(session).map_err(|error| Failure {
            status: exit::FAILED,
            message: error,
        }),
        Some(Command::Explain) => Ok(output::print(&explain::explain(&session)?)?),
        Some(Command::Call { tool, arguments }) => call(&session, &tool, &arguments),
        Some(Command::Pack { .. }) => unreachable!("handled above"),
    }
}

fn call(session: &Session, name: &str, arguments: &str) -> Result<(), Failure> {
    let tool = tools::find(name).ok_or_else(|| {
        usage(format!(
            "unknown tool {name}, there are {}",
            tools::names().join(", ")
        ))
    })?;
    let arguments = serde_json::from_str(arguments)
        .map_err(|error| usage(format!("the arguments are no JSON ({error}): {arguments}")))?;
    let answer = tool.answer(session, arguments)?;
    Ok(output::print(&answer.to_string())?)
}

fn pack(input: &std::path::Path, output: &std::path::Path) -> Result<(), Failure> {
    let set_aside = ingero_trace::pack(input, output).map_err(|error| match error {
        ingero_trace::PackError::Open(error) => error.into(),
        error => Failure {
            status: exit::FAILED,
            message: error.to_string(),
        },
    })?;
    for caveat in set_aside {
        eprintln!("ingero-mcp: {}", text::clean(&caveat));
    }
    Ok(())
}
