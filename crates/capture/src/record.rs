//! `record`: from the command line to the finished trace.

use crate::cli::Record;
use crate::cuda::CudaProbes;
use crate::error::RecordError;
use crate::host::{self, Limits};
use crate::kernel::{Kernel, OBJECT};
use crate::launch::{self, Held};
use crate::poll::{Poller, ProcessFd, Signals};
use crate::progress::Progress;
use crate::session::Session;
use crate::target;
use crate::{clock, decode, preflight, procfs, secrets, self_test, terminal};
use ingero_trace::{SCHEMA_VERSION, TraceInfo, TraceWriter};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The rings are drained and `/proc` is sampled this often.
const TICK: Duration = Duration::from_millis(100);

/// Records, and returns the exit code: that of the command where one was recorded to its end.
pub(crate) fn run(options: &Record) -> Result<ExitCode, RecordError> {
    preflight::check_output(&options.output)?;
    if let Some(pid) = options.pid {
        preflight::check_pid(pid)?;
    }
    let user = launch::sudo_user()?;
    let environment = launch::environment(user.as_ref());
    if let Some(program) = options.command.first() {
        launch::find_in(program, &environment)?;
    }
    preflight::check_machine()?;
    // Before anything starts a thread.
    let held = match options.pid {
        Some(_) => None,
        None => Some(launch::hold(&options.command, &environment, user.as_ref())?),
    };
    let signals = Signals::block().map_err(RecordError::system("receive signals"))?;

    let mut kernel = Kernel::load()?;
    let mut cuda = CudaProbes::new(kernel.ebpf(), OBJECT).map_err(|error| error.to_string());
    let probe_pair_cost_ns = self_test::run(&mut kernel, &mut cuda)?;
    match &mut cuda {
        Ok(cuda) if held.is_some() => cuda.pre_attach(&environment),
        Ok(_) => {}
        Err(reason) => terminal::warn(&format!("CUDA calls are not recorded: {reason}")),
    }
    for probe in &kernel.probes {
        if let Some(reason) = &probe.reason {
            terminal::warn(&format!("{}: {reason}", probe.name));
        }
    }
    let root = held
        .as_ref()
        .map_or(options.pid.unwrap_or_default(), |held| held.pid);
    let process = ProcessFd::open(root).map_err(RecordError::system("watch the target"))?;
    let owner = user.as_ref().map(|user| (user.uid, user.gid));
    let writer = TraceWriter::create_for(&options.output, owner)?;
    let limits = Limits::of(root);
    let mut info = trace_info(options, root, &limits);
    info.probe_pair_cost_ns = probe_pair_cost_ns.map(|cost_ns| cost_ns as i64);
    let start_ns = clock::monotonic_ns();
    let session = Session::new(kernel, cuda, writer, info, limits, start_ns);
    let started = start(session, root, held);
    let mut session = started.inspect_err(|_| remove_output(&options.output))?;

    let ended = watch(&mut session, options, &process, &signals, root);
    let Ended {
        reason,
        exit_status,
    } = ended?;
    let (_, figures) = session.finish(reason, exit_status)?;
    Progress::new().finish(&figures);
    terminal::say(&format!(
        "To ask for the diagnosis:\n  ingero-mcp --db {} explain",
        shell_quoted(&options.output)
    ));
    // A command that goes on has no status yet.
    Ok(ExitCode::from(exit_status.unwrap_or(0) as u8))
}

/// Starts recording the target, and lets a held command go.
fn start(mut session: Session, root: i32, held: Option<Held>) -> Result<Session, RecordError> {
    session.start()?;
    let mut existing = target::add_tree(&mut session.kernel, root)?;
    if held.is_some() {
        // Still a copy of the recorder; the exec tells the command line.
        existing
            .iter_mut()
            .for_each(|thread| thread.command_line = None);
    }
    session.add_existing(&existing);
    if let Some(held) = held {
        held.release()?;
    }
    Ok(session)
}

/// How a recording ended.
struct Ended {
    reason: &'static str,
    exit_status: Option<i32>,
}

/// Records until the target ends, the time is over, or somebody stops it.
fn watch(
    session: &mut Session,
    options: &Record,
    process: &ProcessFd,
    signals: &Signals,
    root: i32,
) -> Result<Ended, RecordError> {
    let waiting = RecordError::system("wait for events");
    let poller = Poller::new().map_err(&waiting)?;
    for fd in session
        .fds()
        .into_iter()
        .chain([signals.fd(), process.fd()])
    {
        poller.add(fd).map_err(&waiting)?;
    }
    let is_command = options.pid.is_none();
    let began = Instant::now();
    let mut next_tick = began + TICK;
    let mut progress = Progress::new();
    let mut interrupts = 0;
    loop {
        poller
            .wait(next_tick.saturating_duration_since(Instant::now()))
            .map_err(&waiting)?;
        if Instant::now() >= next_tick {
            session.tick()?;
            progress.update(|| session.figures());
            // After a pause, ticks that were missed are left out.
            next_tick = (next_tick + TICK).max(Instant::now());
        } else {
            session.drain();
        }
        while let Some(signal) = signals.next() {
            interrupts += 1;
            if signal.number == libc::SIGTERM || !is_command || interrupts > 1 {
                return Ok(Ended {
                    reason: "interrupted",
                    exit_status: None,
                });
            }
            if !signal.from_terminal {
                process.signal(libc::SIGINT);
            }
            terminal::warn(
                "recording until the command has ended; Ctrl-C again stops the recorder",
            );
        }
        if process.has_ended() {
            let exit_status = if is_command {
                Some(wait_for(root)?)
            } else {
                None
            };
            session.await_last_switch(root);
            return Ok(Ended {
                reason: "target exited",
                exit_status,
            });
        }
        if options
            .duration
            .is_some_and(|duration| began.elapsed() >= duration)
        {
            return Ok(Ended {
                reason: "duration",
                exit_status: None,
            });
        }
    }
}

/// The exit status of the recorder's child that has ended.
fn wait_for(pid: i32) -> Result<i32, RecordError> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    if unsafe { libc::waitpid(pid, &mut status, 0) } != pid {
        return Err(RecordError::system("learn how the command ended")(
            std::io::Error::last_os_error(),
        ));
    }
    Ok(decode::exit_status(status))
}

fn trace_info(options: &Record, root: i32, limits: &Limits) -> TraceInfo {
    let host = host::read();
    let command: Vec<String> = match options.pid {
        Some(pid) => procfs::arguments(pid).unwrap_or_default(),
        None => options
            .command
            .iter()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect(),
    };
    TraceInfo {
        ts_ns: 0,
        schema_version: SCHEMA_VERSION,
        trace_id: procfs::read_lossy("/proc/sys/kernel/random/uuid")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        host: host.name,
        kernel: host.kernel,
        cpu_model: host.cpu_model,
        cores_online: host.cores_online,
        cores_affinity: limits.affinity.as_ref().map(|affinity| affinity.cores),
        affinity_cpus: limits
            .affinity
            .as_ref()
            .map(|affinity| affinity.cpus.clone()),
        cgroup_quota_cores: limits.quota.as_ref().map(|quota| quota.cores),
        cores_usable: host::cores_usable(
            host.cores_online,
            limits.affinity.as_ref(),
            limits.quota.as_ref(),
        ),
        smt_active: host.smt_active,
        memory_bytes: host.memory_bytes,
        gpus: host.gpus,
        driver_version: host.driver_version,
        cuda_libraries: String::new(),
        command: secrets::command_line(&command),
        target_kind: if options.pid.is_some() {
            "pid"
        } else {
            "command"
        }
        .to_owned(),
        target_pid: root,
        start_utc_us: clock::utc_us(),
        duration_ns: 0,
        ended: false,
        end_reason: None,
        exit_status: None,
        recorder_version: env!("CARGO_PKG_VERSION").to_owned(),
        recorder_cpu_ns: 0,
        probe_pair_cost_ns: None,
        probes: Vec::new(),
    }
}

/// Takes back a trace in which nothing was recorded.
fn remove_output(output: &Path) {
    // What cannot be removed is at least an empty trace.
    let _ = std::fs::remove_file(output);
    let _ = std::fs::remove_dir_all(output.with_extension("events"));
}

/// A path as it is typed into a shell.
fn shell_quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "/._-+:@%".contains(character);
    if text.chars().all(plain) && !text.starts_with('-') {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_only_where_a_shell_needs_it() {
        assert_eq!(shell_quoted(Path::new("/tmp/t.duckdb")), "/tmp/t.duckdb");
        assert_eq!(
            shell_quoted(Path::new("my trace.duckdb")),
            "'my trace.duckdb'"
        );
        assert_eq!(shell_quoted(Path::new("it's.duckdb")), r"'it'\''s.duckdb'");
    }
}
