//! How recordings end, and what happens with input that cannot be recorded.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // tests, and the commands they record

mod support;

use ingero_testkit::{live_lock, needs_root_and_bpf};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Guard, Recording, eventually, expect_status};

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    if !needs_root_and_bpf("the_status_of_the_command_is_passed_on") {
        return;
    }
    let _lock = live_lock();
    for (script, status) in [("exit 7", 7), ("kill -TERM $$", 143), ("true", 0)] {
        let recording = Recording::new();
        let output = expect_status(&mut recording.command(["--", "sh", "-c", script]), status);
        assert_eq!(recording.info().exit_status, Some(status));
        assert!(stderr(&output).contains("ingero-mcp --db"), "{output:?}");
        assert_eq!(
            recording.number(&format!(
                "SELECT count(*) FROM process_events WHERE exit_status = {status}"
            )),
            1
        );
    }
}

#[test]
fn signals_end_a_recording_properly() {
    if !needs_root_and_bpf("signals_end_a_recording_properly") {
        return;
    }
    let _lock = live_lock();
    // SIGTERM stops the recorder, the first SIGINT the command.
    for (signal, status, reason) in [
        (libc::SIGTERM, 0, "interrupted"),
        (libc::SIGINT, 130, "target exited"),
    ] {
        let recording = Recording::new();
        let mut command = recording.command(["--", "sleep", "100"]);
        // Whoever started the tests in the background of a script had SIGINT ignored in all of them.
        // SAFETY: signal() may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut recorder = Guard(command.stderr(Stdio::null()).spawn().unwrap());
        eventually("the recording has begun", || {
            recording.lasts(Duration::from_millis(1))
        });
        let command = recording.info().target_pid;
        // SAFETY: takes numbers; both processes are running.
        unsafe { libc::kill(recorder.0.id() as i32, signal) };
        assert_eq!(recorder.0.wait().unwrap().code(), Some(status));
        // SAFETY: as above; the command may have ended, and nobody else reuses its number so soon.
        unsafe { libc::kill(command, libc::SIGKILL) };
        let info = recording.info();
        assert!(info.ended);
        assert_eq!(info.end_reason.as_deref(), Some(reason));
    }
}

#[test]
fn a_command_runs_as_the_user_who_called_sudo_and_owns_the_trace() {
    use std::os::unix::fs::MetadataExt as _;
    if !needs_root_and_bpf("a_command_runs_as_the_user_who_called_sudo_and_owns_the_trace") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let mut command = recording.command(["--", "sh", "-c", "id -u; echo $HOME $KEPT"]);
    // `nobody` on every Linux; its group differs, and any will do.
    command
        .env("SUDO_UID", "65534")
        .env("SUDO_GID", "65534")
        .env("KEPT", "kept");
    let output = expect_status(&mut command, 0);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("65534\n"), "{stdout}");
    assert!(
        !stdout.contains("/root") && stdout.ends_with(" kept\n"),
        "{stdout}"
    );
    let mut folders = vec![recording.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            assert_eq!(
                (metadata.uid(), metadata.gid()),
                (65534, 65534),
                "{}",
                entry.path().display()
            );
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
}

#[test]
fn a_user_who_cannot_be_told_is_not_taken_for_root() {
    // SAFETY: takes nothing and returns a number.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root runs commands as somebody else");
        return;
    }
    for (uid, gid) in [
        ("abc", "1000"),
        ("-1", "-1"),
        ("1000", ""),
        ("65534", "4294967295"),
        ("54321", "54321"),
    ] {
        let recording = Recording::new();
        let mut command = recording.command(["--", "true"]);
        command.env("SUDO_UID", uid).env("SUDO_GID", gid);
        let output = expect_status(&mut command, 125);
        assert!(
            stderr(&output).contains("to run the command as root"),
            "{output:?}"
        );
        assert!(recording.is_empty());
    }
}

#[test]
fn the_recorder_does_not_record_itself() {
    let recording = Recording::new();
    let output = expect_status(
        Command::new("sh")
            .args(["-c", "exec \"$0\" record -o \"$1\" --pid $$"])
            .arg(env!("CARGO_BIN_EXE_ingero-capture"))
            .arg(recording.path()),
        125,
    );
    assert!(stderr(&output).contains("is this recorder"), "{output:?}");
    assert!(recording.is_empty());
}

#[test]
fn what_cannot_be_recorded_is_refused_and_leaves_nothing() {
    let refused = |arguments: &[&str], status: i32, message: &str| {
        let recording = Recording::new();
        let output = expect_status(&mut recording.command(arguments), status);
        assert!(
            stderr(&output).contains(message),
            "{arguments:?}: {output:?}"
        );
        assert!(recording.is_empty(), "{arguments:?} left something");
    };
    refused(
        &["--", "no-such-command"],
        127,
        "command not found: no-such-command",
    );
    refused(&["--", "/tmp"], 126, "cannot run /tmp");
    refused(&["--pid", "4194304"], 125, "there is no process 4194304");
    refused(&["--", ""], 127, "command not found: its name is empty");
    // The first kernel thread on every Linux.
    refused(&["--pid", "2"], 125, "is a kernel thread");
    refused(&["--pid", "-5"], 2, "is not in 1..");
    refused(&["--pid", "x"], 2, "invalid value");
    refused(&["--pid", "1", "--", "true"], 2, "cannot be used with");
    refused(&[], 2, "required");
    for duration in ["-1", "0", "1e300", "NaN"] {
        let arguments = ["--duration", duration, "--pid", "1"];
        refused(&arguments, 2, "more than 0 and at most");
    }
}

#[test]
fn outputs_that_cannot_be_written_are_refused() {
    let recorder = |output: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingero-capture"));
        command
            .arg("record")
            .arg("-o")
            .arg(output)
            .args(["--", "true"]);
        command
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let output = expect_status(&mut recorder(&at("missing/t.duckdb")), 125);
    assert!(stderr(&output).contains("cannot write into"), "{output:?}");
    let output = expect_status(&mut recorder(&at("t.parquet")), 125);
    assert!(stderr(&output).contains("ends in .duckdb"), "{output:?}");
    let output = expect_status(&mut recorder(&at("t.duckdb/")), 125);
    assert!(stderr(&output).contains("ends in .duckdb"), "{output:?}");
    std::fs::write(at("t.duckdb"), "mine").unwrap();
    let output = expect_status(&mut recorder(&at("t.duckdb")), 125);
    assert!(stderr(&output).contains("is there already"), "{output:?}");
    assert_eq!(std::fs::read(at("t.duckdb")).unwrap(), b"mine");
}

#[test]
fn a_thread_is_no_process() {
    let (tid_out, tid_in) = std::sync::mpsc::channel();
    let (stop_in, stop) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: takes nothing and returns a number.
        tid_out.send(unsafe { libc::gettid() }).unwrap();
        let _ = stop.recv();
    });
    let tid = tid_in.recv().unwrap();
    let recording = Recording::new();
    let output = expect_status(&mut recording.command(["--pid", &tid.to_string()]), 125);
    assert!(
        stderr(&output).contains(&format!("use --pid {}", std::process::id())),
        "{output:?}"
    );
    assert!(recording.is_empty());
    drop(stop_in);
    thread.join().unwrap();
}

#[test]
fn a_script_without_its_interpreter_is_refused_and_leaves_nothing() {
    if !needs_root_and_bpf("a_script_without_its_interpreter_is_refused_and_leaves_nothing") {
        return;
    }
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let recording = Recording::new();
    let output = expect_status(
        &mut recording.command(["--".as_ref(), script.as_os_str()]),
        126,
    );
    assert!(stderr(&output).contains("interpreter"), "{output:?}");
    assert!(recording.is_empty());
}

#[test]
fn without_privileges_it_says_so() {
    // SAFETY: takes nothing and returns a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    let recording = Recording::new();
    let program = support::program_for_everybody(recording.folder());
    let mut command = Command::new(&program);
    command
        .current_dir("/")
        .args(["record", "-o", "/tmp/never.duckdb", "--", "true"]);
    if is_root {
        command.uid(65534).gid(65534);
    }
    let output = expect_status(&mut command, 125);
    assert!(stderr(&output).contains("run it with sudo"), "{output:?}");
}
