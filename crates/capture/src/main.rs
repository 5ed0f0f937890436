//! Records scheduler, process and CUDA events of a GPU job into a trace.
//!
//! The path of one event: `bpf/` fires and fills a ring or a map; [`kernel`] owns those;
//! [`decode`], [`off_cpu`], [`cpu_time`], [`pages`] and [`processes`] make rows of what arrives;
//! [`session`] drives them and hands the rows to the writer of `ingero-trace`.

mod capabilities;
mod cgroup;
mod check;
mod cli;
mod clock;
mod cpu_time;
mod cuda;
mod decode;
mod error;
mod host;
mod kernel;
mod launch;
mod lost;
#[cfg(test)]
mod missed_switches;
mod off_cpu;
mod pages;
mod poll;
mod preflight;
mod processes;
mod procfs;
mod progress;
mod record;
mod samples;
mod secrets;
mod self_test;
mod session;
mod target;
mod terminal;
mod wire;

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli::Cli { command } = cli::Cli::parse();
    let options = match command {
        cli::Command::Record(options) => options,
        cli::Command::Check(options) => return check::run(&options),
    };
    match record::run(&options) {
        Ok(code) => code,
        Err(error) => {
            terminal::warn(&error.to_string());
            error.exit_code()
        }
    }
}
