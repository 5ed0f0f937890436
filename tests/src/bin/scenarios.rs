//! Records the scenarios and prints how they were diagnosed: see `scripts/scenarios --help`.
#![allow(clippy::print_stdout)] // the table is the output of the program
#![allow(clippy::unwrap_used, clippy::expect_used)] // a tool for developers

use ingero_tests::scenarios::{
    ALL, BLIND, STANDARD, Scenario, Variant, record_and_diagnose, table,
};
use std::process::ExitCode;

const HELP: &str = "\
Records the scenarios with ingero-capture, asks ingero-mcp for the diagnosis, and prints a table in
Markdown. Needs root. Exits with 1 if a verdict is wrong.

usage: scripts/scenarios [--full] [--blind] [NAME ...]

--full   each three times: as it was designed; with durations times 0.6 and workers named python; and
         beside a compiler
--blind  the scenarios that were written without sight of the rules, instead of the others
NAME     only these scenarios, for example G1 R4";

fn main() -> ExitCode {
    let (mut full, mut blind) = (false, false);
    let mut chosen: Vec<Scenario> = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--full" => full = true,
            "--blind" => blind = true,
            "--help" | "-h" => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            name => match ALL
                .iter()
                .chain(&BLIND)
                .find(|scenario| scenario.name == name)
            {
                Some(scenario) => chosen.push(*scenario),
                None => {
                    eprintln!("scenarios: unknown: {name}\n\n{HELP}");
                    return ExitCode::from(2);
                }
            },
        }
    }
    if chosen.is_empty() && blind {
        chosen.extend(BLIND);
    } else if chosen.is_empty() {
        chosen.extend(ALL);
    }
    let variants = if full {
        let other = Variant {
            scale: 0.6,
            worker_name: "python",
            ..STANDARD
        };
        let loaded = Variant {
            loaded: true,
            ..STANDARD
        };
        vec![STANDARD, other, loaded]
    } else {
        vec![STANDARD]
    };

    // Beside the program, because G6 needs a file on a disk and /tmp may not be on one.
    let program = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let _lock = ingero_testkit::live_lock();
    let mut outcomes = Vec::new();
    for scenario in chosen {
        for &variant in &variants {
            eprintln!("{} {variant:?}", scenario.name);
            outcomes.push(record_and_diagnose(scenario, variant, folder.path()));
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
