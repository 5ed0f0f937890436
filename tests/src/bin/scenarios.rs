//! Records the scenarios and prints how they were diagnosed: see `scripts/scenarios --help`.
#![allow(clippy::print_stdout)] // the table is the output of the program
#![allow(clippy::unwrap_used, clippy::expect_used)] // a tool for developers

use ingero_tests::scenarios::{ALL, Scenario, Variant, record_and_diagnose, table};
use std::process::ExitCode;

const HELP: &str = "\
Records the scenarios with ingero-capture, asks ingero-mcp for the diagnosis, and prints a table in
Markdown. Needs root. Exits with 1 if a verdict is wrong.

usage: scripts/scenarios [--full] [NAME ...]

--full  durations times 0.6, 1 and 1.7, and workers named pt_data_worker and python
NAME    only these scenarios, for example G1 R4";

fn main() -> ExitCode {
    let mut full = false;
    let mut chosen: Vec<Scenario> = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--full" => full = true,
            "--help" | "-h" => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            name => match ALL.iter().find(|scenario| scenario.name == name) {
                Some(scenario) => chosen.push(*scenario),
                None => {
                    eprintln!("scenarios: unknown: {name}\n\n{HELP}");
                    return ExitCode::from(2);
                }
            },
        }
    }
    if chosen.is_empty() {
        chosen.extend(ALL);
    }
    let (scales, names): (&[f64], &[&'static str]) = if full {
        (&[0.6, 1.0, 1.7], &["pt_data_worker", "python"])
    } else {
        (&[1.0], &["pt_data_worker"])
    };

    // Beside the program, because G6 needs a file on a disk and /tmp may not be on one.
    let program = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let _lock = ingero_testkit::live_lock();
    let mut outcomes = Vec::new();
    for scenario in chosen {
        for &scale in scales {
            for &worker_name in names {
                eprintln!("{} x{scale} {worker_name}", scenario.name);
                let variant = Variant { scale, worker_name };
                outcomes.push(record_and_diagnose(scenario, variant, folder.path()));
            }
        }
    }
    print!("{}", table(&outcomes));
    let wrong = outcomes.iter().filter(|o| !o.faults().is_empty()).count();
    eprintln!(
        "{} of {} as expected",
        outcomes.len() - wrong,
        outcomes.len()
    );
    ExitCode::from(u8::from(wrong > 0))
}
