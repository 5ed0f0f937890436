//! `check` on this machine, and on machines that lack something.

#![allow(clippy::unwrap_used)] // tests

mod support;

use ingero_testkit::{live_lock, needs_root_and_bpf};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use support::{Recording, expect_status};

/// In a folder of its own, which everybody may enter.
fn check(folder: &Path) -> Command {
    let mut command = Command::new(support::program_for_everybody(folder));
    command.arg("check").current_dir(folder);
    command
}

/// Runs it for people and for programs: both say the same, in the same words.
fn said(command: &mut Command, status: i32) -> Value {
    let text = expect_status(command, status).stdout;
    let text = String::from_utf8(text).unwrap();
    let json = expect_status(command.arg("--json"), status).stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let items = json["items"].as_array().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), items.len() + 2, "{text}");
    for (line, item) in lines.iter().zip(items) {
        let word = |name: &str| item[name].as_str().unwrap();
        let (before, status) = line.split_at(line.find(&format!("  {}", word("status"))).unwrap());
        assert_eq!(before.trim_end(), word("title"));
        // What it costs and what is free differs from run to run.
        let varies = |character: char| character.is_ascii_digit() || character == '.';
        let fixed = |text: &str| text.replace(varies, "");
        assert!(
            fixed(status).contains(&fixed(word("found"))),
            "{line}\n{item}"
        );
        match item["advice"].as_str() {
            Some(advice) => assert!(status.ends_with(&format!(": {advice}")), "{line}\n{item}"),
            None => assert_eq!(item["status"], "ok", "advice for {item}"),
        }
    }
    assert_eq!(lines[lines.len() - 2], "");
    assert_eq!(json["summary"], lines[lines.len() - 1]);
    assert_eq!(json["can_record"], status == 0);
    json
}

fn item<'a>(report: &'a Value, id: &str) -> &'a Value {
    let mut items = report["items"].as_array().unwrap().iter();
    items.find(|item| item["id"] == id).unwrap()
}

/// The first thing in the way, by the summary.
fn obstacle(report: &Value) -> &str {
    let summary = report["summary"].as_str().unwrap();
    assert!(
        summary.starts_with("Nothing can be recorded here ("),
        "{summary}"
    );
    summary
}

fn nothing_was_tried(report: &Value) {
    for id in [
        "scheduler",
        "processes",
        "interrupts",
        "page_allocations",
        "cuda_calls",
    ] {
        assert_eq!(item(report, id)["status"], "missing");
        let found = item(report, id)["found"].as_str().unwrap();
        assert!(found.starts_with("not tried"), "{found}");
    }
}

#[test]
fn a_machine_that_can_record_says_so_and_keeps_no_program() {
    if !needs_root_and_bpf("a_machine_that_can_record_says_so_and_keeps_no_program") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let report = said(&mut check(recording.folder()), 0);
    assert_eq!(report["format"], 1);
    for id in [
        "privileges",
        "type_information",
        "pid_namespace",
        "scheduler",
        "processes",
        "interrupts",
        "page_allocations",
        "cuda_calls",
    ] {
        assert_eq!(item(&report, id)["status"], "ok", "{report:#}");
    }
    // It only looked.
    let left: Vec<_> = std::fs::read_dir(recording.folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name != "ingero-capture" && name != "libduckdb.so")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn without_privileges_it_works_and_names_them() {
    let recording = Recording::new();
    let mut command = check(recording.folder());
    // SAFETY: takes nothing and returns a number.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(65534).gid(65534);
    }
    let report = said(&mut command, 1);
    assert!(obstacle(&report).ends_with("run it with sudo."));
    nothing_was_tried(&report);
    assert_eq!(item(&report, "type_information")["status"], "ok");
    // The folder belongs to another user.
    assert_eq!(item(&report, "disk")["status"], "limited");
}

#[test]
fn two_capabilities_suffice() {
    if !needs_root_and_bpf("two_capabilities_suffice") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let plain = check(recording.folder());
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["--inh-caps=+bpf,+perfmon", "--ambient-caps=+bpf,+perfmon"])
        .arg(plain.get_program())
        .arg("check")
        .current_dir(recording.folder());
    let report = said(&mut command, 0);
    assert_eq!(item(&report, "privileges")["status"], "limited");
    // What was promised holds.
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let capabilities = args
        .iter()
        .take_while(|argument| *argument != plain.get_program());
    let traces = tempfile::tempdir().unwrap();
    std::fs::set_permissions(traces.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut record = Command::new("setpriv");
    record
        .args(capabilities)
        .arg(plain.get_program())
        .args(["record", "-o", "t.duckdb", "--", "true"])
        .current_dir(traces.path());
    expect_status(&mut record, 0);
    for id in ["scheduler", "processes", "interrupts", "page_allocations"] {
        assert_eq!(item(&report, id)["status"], "ok", "{report:#}");
    }
}

/// Each is a machine made of this one: by a program that takes something away and then runs `check`.
#[test]
fn machines_that_cannot_record_name_what_is_in_the_way() {
    if !needs_root_and_bpf("machines_that_cannot_record_name_what_is_in_the_way") {
        return;
    }
    let recording = Recording::new();
    let plain = check(recording.folder());
    let program = plain.get_program();
    let hidden_btf = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" \"$@\"";
    for (wrapper, id, advice) in [
        (
            vec!["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
            "privileges",
            "--privileged",
        ),
        (
            vec!["unshare", "--user", "--map-root-user"],
            "privileges",
            "on the host",
        ),
        (
            vec!["unshare", "--pid", "--fork", "--mount-proc"],
            "pid_namespace",
            "--pid=host",
        ),
        (
            vec!["unshare", "--mount", "sh", "-c", hidden_btf],
            "type_information",
            "CONFIG_DEBUG_INFO_BTF",
        ),
        (
            vec!["env", "SUDO_UID=65534", "SUDO_GID=x"],
            "user",
            "unset SUDO_UID",
        ),
    ] {
        let mut command = Command::new(wrapper[0]);
        command
            .args(&wrapper[1..])
            .arg(program)
            .arg("check")
            .current_dir(recording.folder());
        let report = said(&mut command, 1);
        assert_eq!(item(&report, id)["status"], "missing", "{wrapper:?}");
        assert!(obstacle(&report).contains(advice), "{}", report["summary"]);
        nothing_was_tried(&report);
    }
}

#[test]
fn a_sandbox_that_refuses_bpf_is_told_from_a_lack_of_rights() {
    if !needs_root_and_bpf("a_sandbox_that_refuses_bpf_is_told_from_a_lack_of_rights") {
        return;
    }
    let recording = Recording::new();
    let mut command = check(recording.folder());
    // SAFETY: prctl with valid arguments may be called between fork and exec.
    unsafe { command.pre_exec(refuse_bpf) };
    let report = said(&mut command, 1);
    assert_eq!(item(&report, "privileges")["status"], "ok");
    assert!(obstacle(&report).contains("Operation not permitted"));
    assert!(
        obstacle(&report).contains("sandbox"),
        "{}",
        report["summary"]
    );
    assert!(
        item(&report, "cuda_calls")["found"]
            .as_str()
            .unwrap()
            .starts_with("not tried")
    );
}

/// As containers do: bpf(2) fails with "not permitted".
fn refuse_bpf() -> std::io::Result<()> {
    let instruction = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut program = [
        // The number of the call is the first field of what the filter sees.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_bpf as u32,
        ),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the filter lives through the call and tells its length.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) };
    if result != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

#[test]
fn other_arguments_are_refused_with_another_status() {
    let recording = Recording::new();
    for arguments in [&["--jsn"][..], &["now"], &["--json=yes"]] {
        let output = expect_status(check(recording.folder()).args(arguments), 2);
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_reader_that_goes_away_and_a_folder_that_is_gone_are_no_reason_to_fail() {
    let recording = Recording::new();
    let program = check(recording.folder()).get_program().to_owned();
    for script in [
        "\"$0\" check | true",
        "mkdir gone && cd gone && rmdir ../gone && \"$0\" check | grep 'current folder'",
    ] {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script])
            .arg(&program)
            .current_dir(recording.folder());
        let output = expect_status(&mut shell, 0);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    }
}
