//! Records real workloads. The recorded command is this test program itself.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // tests, and the commands they record

mod support;

use ingero_testkit::{live_lock, needs_root_and_bpf};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{Guard, Recording, WORKLOAD, eventually, expect_status};

/// What this program does when it is the recorded command; nothing otherwise.
#[test]
fn workload() {
    match std::env::var(WORKLOAD).as_deref() {
        Ok("contend") => contend(),
        Ok("spin") => spin_and_tell(),
        Ok("pingpong") => ping_pong(),
        Ok("threads") => old_threads(),
        Ok("naps") => loop {
            std::thread::sleep(Duration::from_millis(5));
        },
        Ok("hog") => spin(Duration::from_millis(1500)),
        Ok(other) => panic!("no workload {other}"),
        Err(_) => {}
    }
}

fn pin(cpu: usize) {
    // SAFETY: an all-zero set is valid; the calls only write into it and read it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Competes for CPU 0 and sleeps a little, then prints tid, run and run-queue time as the kernel counts them.
fn spin_and_tell() {
    pin(0);
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        spin(Duration::from_millis(7));
        std::thread::sleep(Duration::from_micros(300));
    }
    // SAFETY: takes nothing and returns a number.
    let tid = unsafe { libc::gettid() };
    let schedstat = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    println!("schedstat {tid} {schedstat}");
}

fn contend() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "workload", "--nocapture"])
        .env(WORKLOAD, "spin")
        .spawn()
        .unwrap();
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(spin_and_tell)).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(child.wait().unwrap().success());
}

/// Two threads on two CPUs that wake each other, for a second.
fn ping_pong() {
    let (mut read_a, mut write_a) = std::io::pipe().unwrap();
    let (mut read_b, mut write_b) = std::io::pipe().unwrap();
    let echo = std::thread::spawn(move || {
        pin(1);
        let mut byte = [0];
        while read_a.read(&mut byte).unwrap() == 1 {
            write_b.write_all(&byte).unwrap();
        }
    });
    pin(0);
    let end = Instant::now() + Duration::from_secs(1);
    let mut byte = [0];
    while Instant::now() < end {
        write_a.write_all(&byte).unwrap();
        read_b.read_exact(&mut byte).unwrap();
    }
    drop(write_a);
    echo.join().unwrap();
}

/// Three threads nap until a line comes; then one of them, not the main thread, forks and renames itself.
fn old_threads() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
        }
        scope.spawn(|| {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            let status = Command::new("/bin/sh")
                .args(["-c", "exit 3"])
                .status()
                .unwrap();
            assert_eq!(status.code(), Some(3));
            // SAFETY: the name is a string that ends with a zero.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"renamed".as_ptr()) };
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        println!("ready");
    });
}

#[test]
fn contended_threads_agree_with_schedstat() {
    if !needs_root_and_bpf("contended_threads_agree_with_schedstat") {
        return;
    }
    let _lock = live_lock();
    // A hypervisor that stops the CPU between the scheduler's stamp and ours moves milliseconds from
    // one thread to another. It does so now and then; a mistake of ours would be there every time.
    const ATTEMPTS: usize = 5;
    let disagreements: Vec<String> = (0..ATTEMPTS)
        .map_while(|_| schedstat_disagreement())
        .collect();
    assert!(disagreements.len() < ATTEMPTS, "{disagreements:#?}");
}

/// Records competing threads. Says where a row's sums are more than 3% from the kernel's own.
fn schedstat_disagreement() -> Option<String> {
    let recording = Recording::new();
    let output = expect_status(&mut recording.workload(&[], "contend"), 0);
    assert_eq!(
        recording.number("SELECT count(*) FROM lost_events WHERE class <> 'switch_in'"),
        0
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    let kernel: BTreeMap<i64, (i64, i64)> = stdout
        .lines()
        .filter_map(|line| {
            let numbers = line.split_once("schedstat ")?.1.split(' ');
            let numbers: Vec<i64> = numbers.map(|number| number.parse().unwrap()).collect();
            Some((numbers[0], (numbers[1], numbers[2])))
        })
        .collect();
    assert_eq!(kernel.len(), 4, "{stdout}");
    let ours: BTreeMap<i64, (i64, i64)> = recording
        .query(
            "SELECT tid, sum(ran_ns)::BIGINT, sum(runq_ns)::BIGINT FROM off_cpu GROUP BY tid",
            |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))),
        )
        .into_iter()
        .collect();
    kernel.into_iter().find_map(|(tid, (run, runq))| {
        let (our_run, our_runq) = ours[&tid];
        let differs = |ours: i64, theirs: i64| (ours - theirs).abs() * 100 > theirs * 3;
        (differs(our_run, run) || differs(our_runq, runq)).then(|| {
            format!("thread {tid}: ran {our_run}, kernel {run}; queued {our_runq}, kernel {runq}")
        })
    })
}

#[test]
fn an_uncontended_ping_pong_does_not_wait_for_a_cpu() {
    if !needs_root_and_bpf("an_uncontended_ping_pong_does_not_wait_for_a_cpu") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    expect_status(&mut recording.workload(&[], "pingpong"), 0);
    // Only the second of ping-pong: the two threads with most switches.
    let threads = recording.query(
        "SELECT tid, sum(runq_ns) FILTER (NOT idle_before)::BIGINT, count(*), \
                min(ts_ns)::BIGINT, max(ts_ns)::BIGINT \
         FROM off_cpu GROUP BY tid ORDER BY count(*) DESC LIMIT 2",
        |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, Option<i64>>(1)?.unwrap_or(0),
                row.get::<_, i64>(2)?,
                row.get::<_, i64>(3)?,
                row.get::<_, i64>(4)?,
            ))
        },
    );
    // Whoever else ran may have been waited for.
    let others = recording.number(
        "SELECT coalesce(sum(run_ns), 0)::BIGINT FROM cpu_time \
         WHERE pid NOT IN (SELECT pid FROM process_events)",
    );
    for (tid, runq, switches, first, last) in threads {
        assert!(switches > 1000, "{tid}: {switches} switches");
        let allowed = (last - first) / 50 + others;
        assert!(
            runq <= allowed,
            "{tid}: {runq} ns in the run queue, allowed {allowed}"
        );
    }
}

#[test]
fn threads_older_than_the_recording_are_seen_and_their_forks_followed() {
    if !needs_root_and_bpf("threads_older_than_the_recording_are_seen_and_their_forks_followed") {
        return;
    }
    let _lock = live_lock();
    let target = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "workload", "--nocapture"])
        .env(WORKLOAD, "threads")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut target = Guard(target);
    let mut lines = BufReader::new(target.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("ready")));
    let pid = target.0.id();
    let tids: Vec<i32> = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    assert!(tids.len() >= 5);

    let recording = Recording::new();
    let mut recorder = Guard(
        recording
            .command(["--pid", &pid.to_string()])
            .spawn()
            .unwrap(),
    );
    eventually("the recording has begun", || {
        recording.lasts(Duration::from_millis(1))
    });
    target.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(target.0.wait().unwrap().success());
    assert_eq!(recorder.0.wait().unwrap().code(), Some(0));

    for tid in tids {
        let of_thread =
            |what: &str| recording.number(&format!("SELECT count(*) FROM {what} AND tid = {tid}"));
        assert!(
            of_thread("off_cpu WHERE NOT continued") > 0,
            "no interval of thread {tid}"
        );
        assert_eq!(
            of_thread("process_events WHERE kind = 'existing'"),
            1,
            "thread {tid}"
        );
    }
    let count = |condition: &str| {
        recording.number(&format!(
            "SELECT count(*) FROM process_events WHERE {condition}"
        ))
    };
    assert_eq!(count(&format!("kind = 'fork' AND parent_pid = {pid}")), 1);
    assert_eq!(
        count(&format!(
            "kind = 'rename' AND name = 'renamed' AND pid = {pid} AND tid <> pid"
        )),
        1
    );
    assert_eq!(
        count("kind = 'exec' AND command_line = '/bin/sh -c exit 3'"),
        1
    );
    assert_eq!(count("kind = 'exit' AND exit_status = 3"), 1);
    assert_eq!(
        count(&format!(
            "kind = 'exit' AND exit_status = 0 AND pid = {pid}"
        )),
        1
    );
    assert_eq!(
        recording.info().end_reason.as_deref(),
        Some("target exited")
    );
}

#[test]
fn a_killed_recorder_loses_two_seconds_at_most() {
    if !needs_root_and_bpf("a_killed_recorder_loses_two_seconds_at_most") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    let mut recorder = Guard(recording.workload(&[], "naps").spawn().unwrap());
    eventually("some seconds are recorded", || {
        recording.lasts(Duration::from_secs(3))
    });
    let command = recording.info().target_pid;
    // The worst moment: just before the next rows are stored.
    let seen = recording.info().duration_ns;
    eventually("the next flush", || recording.info().duration_ns > seen);
    let flushed = Instant::now();
    eventually("almost the one after it", || {
        flushed.elapsed() > Duration::from_millis(1500)
    });
    let killed_us = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_micros() as i64;
    recorder.0.kill().unwrap();
    recorder.0.wait().unwrap();
    // SAFETY: takes numbers; the command is a child of the recorder that nobody else has waited for.
    unsafe { libc::kill(command, libc::SIGKILL) };

    let info = recording.info();
    assert!(!info.ended);
    let last_ns =
        recording.number("SELECT max(ts_ns + blocked_ns + wake_ns + runq_ns)::BIGINT FROM off_cpu");
    let missing_us = killed_us - info.start_utc_us - last_ns / 1000;
    assert!(missing_us <= 2_000_000, "{missing_us} us are missing");
    assert!(
        last_ns >= info.duration_ns,
        "complete up to {}, last row {last_ns}",
        info.duration_ns
    );
}

#[test]
fn a_long_wait_is_stored_in_pieces_and_counts_once() {
    if !needs_root_and_bpf("a_long_wait_is_stored_in_pieces_and_counts_once") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    expect_status(&mut recording.command(["--", "sleep", "6"]), 0);
    let (pieces, begun, total) = recording
        .query(
            "SELECT count(*), count(*) FILTER (NOT continued), sum(blocked_ns + wake_ns + runq_ns)::BIGINT \
             FROM off_cpu WHERE continued OR open",
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
        )
        .remove(0);
    assert!(pieces >= 3, "{pieces} pieces");
    assert_eq!(begun, 1);
    assert!(
        (6_000_000_000..6_050_000_000).contains(&total),
        "{total} ns"
    );
    // The pieces follow each other without a gap.
    let gaps = recording.number(
        "SELECT count(*) FROM (SELECT ts_ns - lag(ts_ns + blocked_ns + wake_ns + runq_ns) OVER (ORDER BY ts_ns) AS gap \
         FROM off_cpu WHERE continued OR open) WHERE gap <> 0",
    );
    assert_eq!(gaps, 0);
}

#[test]
fn a_recording_with_a_duration_ends_with_the_waits_that_go_on() {
    if !needs_root_and_bpf("a_recording_with_a_duration_ends_with_the_waits_that_go_on") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    // The command keeps its output open for as long as it runs: only the recorder is waited for.
    let mut recorder = recording.command(["--duration", "1", "--", "sleep", "100"]);
    let recorder = recorder.stdout(Stdio::null()).stderr(Stdio::null());
    assert!(recorder.status().unwrap().success());
    let info = recording.info();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", info.target_pid));
    let alive = stat.is_ok_and(|stat| stat.contains(" (sleep) S "));
    // SAFETY: takes numbers. The command is still running, as asserted next, so the number is its own.
    unsafe { libc::kill(info.target_pid, libc::SIGKILL) };
    assert!(alive, "the command goes on");
    assert_eq!(
        (info.ended, info.end_reason.as_deref(), info.exit_status),
        (true, Some("duration"), None)
    );
    let end = recording.number(
        "SELECT max(ts_ns + blocked_ns + wake_ns + runq_ns)::BIGINT FROM off_cpu WHERE open",
    );
    assert_eq!(end, info.duration_ns);
}

#[test]
fn cpu_time_of_a_process_that_never_sleeps_is_complete() {
    if !needs_root_and_bpf("cpu_time_of_a_process_that_never_sleeps_is_complete") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    expect_status(&mut recording.workload(&[], "hog"), 0);
    // Whether or not the kernel told every switch: a run begins where the wait before it ended.
    let holes = recording.number(
        "SELECT count(*) FROM (SELECT ts_ns - ran_ns - lag(ts_ns + blocked_ns + wake_ns + runq_ns) \
             OVER (PARTITION BY tid ORDER BY ts_ns) AS hole_ns FROM off_cpu) \
         WHERE hole_ns <> 0",
    );
    assert_eq!(holes, 0);
    let root = recording.info().target_pid;
    let counted = recording.number(&format!(
        "SELECT sum(run_ns)::BIGINT FROM cpu_time WHERE pid = {root}"
    ));
    let ran = recording.number(&format!(
        "SELECT sum(ran_ns)::BIGINT FROM off_cpu WHERE pid = {root}"
    ));
    assert!(
        (counted - ran).abs() * 100 <= ran * 2,
        "cpu_time {counted}, runs {ran}"
    );
    let cpus = std::thread::available_parallelism().unwrap().get();
    let fullest = recording.number(
        "SELECT max(total)::BIGINT FROM (SELECT sum(run_ns) AS total FROM cpu_time GROUP BY ts_ns)",
    );
    assert!(
        fullest <= cpus as i64 * 100_500_000,
        "{fullest} ns in a bucket of {cpus} CPUs"
    );
    assert_eq!(
        recording.number("SELECT count(*) FROM cpu_time WHERE pid = 0 OR ts_ns % 100000000 <> 0"),
        0
    );
}

#[test]
fn every_probe_is_attached_and_passed_its_self_test() {
    if !needs_root_and_bpf("every_probe_is_attached_and_passed_its_self_test") {
        return;
    }
    let _lock = live_lock();
    let recording = Recording::new();
    expect_status(&mut recording.command(["--", "true"]), 0);
    for probe in recording
        .info()
        .probes
        .iter()
        .filter(|probe| !probe.name.contains("cuda"))
    {
        assert!(probe.attached && probe.reason.is_none(), "{probe:?}");
    }
}
