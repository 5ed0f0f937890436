//! Drawn jobs and the verdicts that a careful engineer would give.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use ingero_analysis::Window;
use ingero_analysis::features::features;
use ingero_diagnosis::{Code, Diagnosis, Features, Part, diagnose};
use ingero_testkit::trace::draw;
use proptest::prelude::*;

fn judge(text: &str) -> (Features, Diagnosis) {
    let drawn = draw(text);
    let trace = drawn.open();
    let whole = Window::whole(&trace.info().unwrap());
    let features = features(&trace, whole, None).unwrap();
    let diagnosis = diagnose(&features);
    let shares: f64 = diagnosis.budget.iter().map(|part| part.share).sum();
    assert!(
        diagnosis.budget.is_empty() || (shares - 1.0).abs() < 1e-9,
        "the budget sums to {shares}"
    );
    (features, diagnosis)
}

#[track_caller]
fn expect(code: Code, text: &str) -> Diagnosis {
    let (features, diagnosis) = judge(text);
    assert_eq!(
        diagnosis.verdict.code, code,
        "{diagnosis:#?}\n{features:#?}"
    );
    diagnosis
}

#[test]
fn one_busy_worker_is_too_few() {
    let diagnosis = expect(
        Code::LoaderCpuBound,
        "host online=4
         process 100 python
         process 200 pt_data_worker parent=100
         thread 100 100: (S28<200 R0.1 h2d(0.1,65536) launch(0.01) d2h(2))*100
         thread 200 200: (R30 S0.2<100)*100",
    );
    let finding = &diagnosis.findings[0];
    assert!(
        finding.share > 0.85 && finding.share < 0.95,
        "{}",
        finding.share
    );
    // A step without the wait takes 2.2 ms, a batch 30 ms: 15 workers would do, 4 CPUs carry 4:
    // the feeder needs little of one.
    let changes: Vec<&str> = finding.advice.iter().map(|a| a.change.as_str()).collect();
    assert!(changes[0] == "num_workers=4", "{changes:?}");
    assert!(
        changes.iter().all(|change| !change.contains("index")),
        "nothing was sampled, so nobody knows where the data is"
    );
    assert!(
        finding
            .advice
            .iter()
            .all(|a| a.expected_speedup.is_none_or(|g| g.low <= g.high))
    );
}

#[test]
fn a_worker_with_a_neutral_name_counts_too() {
    let diagnosis = expect(
        Code::LoaderCpuBound,
        "host online=4
         process 100 python
         process 200 python parent=100
         thread 100 100: (S28<200 R0.1 h2d(0.1,65536) launch(0.01) d2h(2))*100
         thread 200 200: (R30 S0.2<100)*100",
    );
    assert!(
        diagnosis.summary.contains("batches"),
        "{}",
        diagnosis.summary
    );
}

#[test]
fn workers_that_wait_for_each_others_cpu_are_too_many() {
    // Four workers on two CPUs, each on one for half of the time.
    let diagnosis = expect(
        Code::WorkerOversub,
        "host online=2
         process 100 python
         process 200 pt_data_worker parent=100
         process 300 pt_data_worker parent=100
         process 400 pt_data_worker parent=100
         process 500 pt_data_worker parent=100
         thread 100 100: (S8<200 Q4 launch(0.01) d2h(R1 Q2) R0.1)*100
         thread 200 200: (R5 Q5 R3 Q2)*100
         thread 300 300: (Q5 R5 Q3 R2)*100
         thread 400 400: (R2 Q6 R5 Q2)*100
         thread 500 500: (Q6 R3 Q5 R1)*100",
    );
    let change = &diagnosis.findings[0].advice[0].change;
    // Not 1: with one worker, half of a CPU would idle.
    assert_eq!(change, "num_workers=2");
}

#[test]
fn handing_over_tiny_batches_is_not_a_lack_of_workers() {
    let diagnosis = expect(
        Code::LoaderIpcInmem,
        "host online=4
         process 100 python
         process 200 pt_data_worker parent=100
         process 300 pt_data_worker parent=100
         thread 100 100: (S0.05<200 R0.4 launch(0.01) d2h(0.1))*2000
         thread 200 200: (R0.2 S0.3<100)*2200
         thread 300 300: (R0.2 S0.3<100)*2200
         samples 100 rchar=0..1000000
         samples 200 rchar=0..90000
         samples 300 rchar=0..90000",
    );
    let finding = &diagnosis.findings[0];
    assert!(finding.advice[0].change.contains("index whole batches"));
    assert!(finding.advice.iter().any(|a| a.change == "num_workers=0"));
}

#[test]
fn preparing_batches_in_the_main_process_is_told_by_the_copies() {
    let diagnosis = expect(
        Code::LoaderCpuBound,
        "process 100 python
         thread 100 100: (R20 h2d(1,4000000) launch(0.01) d2h(2))*50",
    );
    let finding = &diagnosis.findings[0];
    assert!(
        finding
            .title
            .contains("the main process computes between GPU calls")
    );
    assert!(
        finding
            .advice
            .iter()
            .all(|a| !a.change.contains("num_workers"))
    );
}

/// PyTorch copies from pageable memory and waits for the copy; features and labels are two copies
/// of one step, and nothing waits for the kernels before the next step's copy.
#[test]
fn two_copies_are_one_step_and_preparing_is_seen_without_a_wait_for_the_kernels() {
    let (features, diagnosis) = judge(
        "process 100 python
         thread 100 100: (R200 h2d(2,20000000) sync(0.02) R0.1 h2d(0.1,400000) sync(0.02) R0.5 launch(0.01) R0.5 launch(0.01))*30
         samples 100 rchar=0..100000",
    );
    assert_eq!(
        diagnosis.verdict.code,
        Code::LoaderCpuBound,
        "{diagnosis:#?}"
    );
    let feeder = features.feeder.unwrap();
    assert_eq!(feeder.steps, 26);
    assert!(feeder.prepare_s / feeder.span_s > 0.9, "{feeder:?}");
    assert!(
        diagnosis.findings[0].advice[0]
            .change
            .contains("index whole batches")
    );
}

#[test]
fn other_work_of_the_main_thread_is_not_loading() {
    let diagnosis = expect(
        Code::HostSerial,
        "process 100 python
         thread 100 100: (R25 launch(0.01) d2h(3))*50",
    );
    let finding = &diagnosis.findings[0];
    assert!((0.85..0.92).contains(&finding.share), "{}", finding.share);
    assert_eq!(diagnosis.findings.len(), 1, "{diagnosis:#?}");
    assert!(!format!("{:?}", finding.advice).contains("num_workers"));
}

#[test]
fn host_work_that_fits_behind_the_kernels_waits_for_them_in_vain() {
    let diagnosis = expect(
        Code::SyncEveryStep,
        "process 100 python
         thread 100 100: (R0.3 launch(0.01) d2h(0.3))*1000",
    );
    assert_eq!(diagnosis.findings.len(), 1, "{diagnosis:#?}");
    let gain = diagnosis.findings[0].advice[0].expected_speedup.unwrap();
    assert!(
        gain.low == 1.0 && (1.8..2.1).contains(&gain.high),
        "{gain:?}"
    );
    // A wait at the end of a step of a GPU-bound job is none.
    expect(
        Code::HealthyGpuBound,
        "process 100 python
         thread 100 100: (R0.3 launch(0.01) d2h(20))*50",
    );
}

/// PyTorch launches the backward pass from a thread of its own, which never waits for the GPU.
#[test]
fn launches_of_a_backward_thread_are_the_feeders_too() {
    let (features, diagnosis) = judge(
        "host probe_pair_ns=0
         process 100 python
         thread 100 100: ((R0.01 launch(0.005))*100 S3<101 d2h(0.02))*100
         thread 100 101: (S1.52<100 (R0.01 launch(0.02))*100)*100",
    );
    assert_eq!(features.feeder.unwrap().tid, 100);
    assert_eq!(diagnosis.verdict.code, Code::LaunchBound, "{diagnosis:#?}");
    assert!(diagnosis.findings[0].share > 0.9, "{diagnosis:#?}");
}

#[test]
fn a_stream_of_small_kernels_is_bound_by_launches() {
    let diagnosis = expect(
        Code::LaunchBound,
        "host probe_pair_ns=0
         process 100 python
         thread 100 100: ((R0.01 launch(0.005))*500 sync(0.01))*40",
    );
    assert_eq!(diagnosis.findings.len(), 1, "{diagnosis:#?}");
    // The same with probes that take over a fifth of the time: nothing is said of launches.
    let (_, diagnosis) = judge(
        "host probe_pair_ns=5000
         process 100 python
         thread 100 100: ((R0.01 launch(0.005))*500 sync(0.01))*40",
    );
    assert_eq!(diagnosis.verdict.code, Code::HostUnexplained);
    assert!(
        diagnosis
            .caveats
            .iter()
            .any(|caveat| caveat.contains("LAUNCH_BOUND cannot be judged")),
        "{:#?}",
        diagnosis.caveats
    );
    // Launches that are slower than their kernels only look dense: the GPU is behind at each wait.
    expect(
        Code::HealthyGpuBound,
        "host probe_pair_ns=0
         process 100 python
         thread 100 100: ((R0.01 launch(0.005))*500 sync(5))*40",
    );
}

#[test]
fn copies_at_the_rate_of_pageable_memory_hold_the_host_up() {
    let diagnosis = expect(
        Code::H2dPageable,
        "process 100 python
         thread 100 100: (h2d(10,64000000) launch(0.01) d2h(10))*50",
    );
    assert_eq!(diagnosis.findings.len(), 1, "{diagnosis:#?}");
    assert!((0.45..0.55).contains(&diagnosis.findings[0].share));
    // Queued from pinned memory they take no time, and at 40 GB/s they are no pageable ones.
    expect(
        Code::HealthyGpuBound,
        "process 100 python
         thread 100 100: (h2d(0.01,64000000) launch(0.01) d2h(10))*50",
    );
    expect(
        Code::HostUnexplained,
        "process 100 python
         thread 100 100: (h2d(1.6,64000000) launch(0.01) d2h(2))*200",
    );
}

#[test]
fn allocating_in_every_step_is_churn_and_waiting_in_a_free_is_not() {
    let diagnosis = expect(
        Code::AllocChurn,
        "process 100 python
         thread 100 100: ((malloc(0.2))*10 launch(0.01) d2h(4) (free(0.1))*10)*50",
    );
    assert_eq!(diagnosis.findings.len(), 1, "{diagnosis:#?}");
    assert!((0.35..0.5).contains(&diagnosis.findings[0].share));
    expect(
        Code::HealthyGpuBound,
        "process 100 python
         thread 100 100: (malloc(0.1) launch(0.01) free(10))*100",
    );
}

#[test]
fn workers_started_for_every_epoch_are_named_with_what_a_start_costs() {
    // Ten epochs of five steps; each begins with 30 ms of forking and 20 ms until the first batch.
    let epoch = |number: usize| {
        let pid = 1000 + 100 * number;
        let at = 100 + number * 100;
        format!(
            "process {pid} pt_data_worker parent=100 from={} exit=0
             thread {pid} {pid}: @{} R18 S0.1<100 (R1 S9<100)*4
",
            at + 20,
            at + 30,
        )
    };
    let workers: String = (0..10).map(epoch).collect();
    let epochs: String = (0..10)
        .map(|number| {
            format!(
                "R30 S20<{0} (R0.1 launch(0.01) d2h(9.89))*5 ",
                1000 + 100 * number
            )
        })
        .collect();
    let diagnosis = expect(
        Code::WorkerRespawn,
        &format!(
            "host online=4
             process 100 python
             {workers}
             thread 100 100: (R0.1 launch(0.01) d2h(9.89))*10 {epochs}"
        ),
    );
    let finding = &diagnosis.findings[0];
    assert!((0.35..0.5).contains(&finding.share), "{}", finding.share);
    assert!(
        finding.advice[0].change.contains("persistent_workers=True"),
        "{finding:#?}"
    );
}

#[test]
fn a_neighbour_on_the_cpus_is_named() {
    let diagnosis = expect(
        Code::ExternalContention,
        "host online=2
         process 100 python
         neighbour 900 logrotate cpus=1.6
         thread 100 100: (R3 Q6 launch(0.01) d2h(1.5))*100",
    );
    let finding = &diagnosis.findings[0];
    assert!(
        finding.advice[0].change.contains("logrotate (process 900)"),
        "{finding:#?}"
    );
}

#[test]
fn a_quota_stops_the_job_while_cpus_idle() {
    let text = "host online=2 quota=0.5
         process 100 python
         thread 100 100: (R5 Q15 launch(0.01) d2h(1))*100
         throttled periods=21 throttled=20 ms=1500";
    let diagnosis = expect(Code::QuotaThrottle, text);
    let advice = &diagnosis.findings[0].advice;
    assert!(advice[0].change.contains("from 0.5 to"), "{advice:#?}");
    // Without the counters nobody can tell.
    let (_, diagnosis) = judge(text.split("throttled periods").next().unwrap());
    assert!(
        diagnosis
            .caveats
            .iter()
            .any(|caveat| caveat.contains("QUOTA_THROTTLE cannot be judged")),
        "{:#?}",
        diagnosis.caveats
    );
}

#[test]
fn a_mask_of_one_cpu_is_told_from_too_many_workers() {
    let diagnosis = expect(
        Code::AffinityConfined,
        "host online=4 usable=1
         process 100 python
         process 200 pt_data_worker parent=100
         process 300 pt_data_worker parent=100
         thread 100 100: (S16<200 Q2 R0.2 launch(0.01) d2h(1.8))*100
         thread 200 200: (R9 Q11)*100
         thread 300 300: (Q9 R9 Q2)*100",
    );
    assert!(
        diagnosis
            .findings
            .iter()
            .all(|f| f.code != Code::WorkerOversub),
        "{diagnosis:#?}"
    );
}

#[test]
fn two_causes_are_both_found() {
    let (_, diagnosis) = judge(
        "host online=4
         process 100 python
         process 200 pt_data_worker parent=100
         thread 100 100: (S20<200 R0.1 h2d(10,64000000) launch(0.01) d2h(2))*50
         thread 200 200: (R32 S0.1<100)*50",
    );
    let codes: Vec<Code> = diagnosis.findings.iter().map(|f| f.code).collect();
    assert_eq!(
        codes,
        [Code::LoaderCpuBound, Code::H2dPageable],
        "{diagnosis:#?}"
    );
}

#[test]
fn waiting_for_the_disk_has_no_known_cause_yet() {
    let diagnosis = expect(
        Code::HostUnexplained,
        "process 100 python
         thread 100 100: (D20 R5 launch(0.01) d2h(3))*50",
    );
    assert!(diagnosis.summary.contains("disk"), "{}", diagnosis.summary);
    assert!(diagnosis.findings.is_empty());
}

#[test]
fn a_busy_gpu_is_no_reason_to_blame_the_host() {
    let text = "process 100 python
         process 200 pt_data_worker parent=100
         process 300 pt_data_worker parent=100
         thread 100 100: (R0.2 h2d(0.1,65536) launch(0.01) d2h(42))*100
         thread 200 200: (R24 S10<100)*120
         thread 300 300: (R24 S10<100)*120";
    let diagnosis = expect(Code::HealthyGpuBound, text);
    assert!(diagnosis.findings.is_empty());
}

#[test]
fn launches_that_wait_for_a_full_queue_are_the_gpu_at_work() {
    expect(
        Code::HealthyGpuBound,
        "process 100 python
         thread 100 100: (launch(0.7) R0.005)*3000",
    );
}

/// The feeder waits for its loader, but the GPU still has work meanwhile: the next copy waits.
#[test]
fn a_wait_that_the_gpu_does_not_notice_costs_nothing() {
    let diagnosis = expect(
        Code::HealthyGpuBound,
        "process 100 python
         process 200 pt_data_worker parent=100
         thread 100 100: (h2d(12,65536) launch(0.01) S28<200)*100
         thread 200 200: (R38 S2<100)*100",
    );
    assert!(diagnosis.findings.is_empty());
}

#[test]
fn a_context_without_work_is_idle() {
    expect(
        Code::Idle,
        "process 100 python
         thread 100 100: malloc(300) S8000<timer R1",
    );
    expect(
        Code::Idle,
        "process 100 python\nthread 100 100: R500 S500<timer R1",
    );
}

#[test]
fn three_launches_are_not_enough() {
    expect(
        Code::Insufficient,
        "process 100 python
         thread 100 100: (R100 launch(0.01))*3",
    );
}

#[test]
fn waits_are_followed_from_waker_to_waker() {
    // The feeder is woken by the worker's queue thread, which was woken by the worker's main
    // thread, which computed.
    let (features, _) = judge(
        "process 100 python
         process 200 python parent=100
         thread 100 100: (S10<201 launch(0.01) d2h(1))*50
         thread 200 200: (R9.9 S1<100)*50
         thread 200 201: (S9.9<200 R0.1 S1.01<200)*50",
    );
    let budget = features.feeder.unwrap().budget;
    let computing = budget.seconds(Part::LoaderCompute);
    assert!(computing > 0.38, "{budget:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever a job did, its time is divided without remainder, and what is exposed is a part
    /// of what was spent.
    #[test]
    fn every_budget_sums_to_the_span(
        steps in prop::collection::vec((0_u8..9, 1_u32..40), 12..60),
        worker in prop::collection::vec((0_u8..4, 1_u32..40), 12..60),
    ) {
        let feeder: Vec<String> = steps.iter().map(|(kind, tenths)| {
            let ms = f64::from(*tenths) / 10.0;
            match kind {
                0 => format!("R{ms}"),
                1 => format!("S{ms}<200+0.1"),
                2 => format!("D{ms}"),
                3 => format!("Q{ms}"),
                4 => format!("launch({ms})"),
                5 => format!("sync(R{ms} S1 Q{ms})"),
                6 => format!("h2d({ms},100000)"),
                7 => format!("S{ms}<timer"),
                _ => format!("d2h(Q{ms} R0.05)"),
            }
        }).collect();
        let worker: Vec<String> = worker.iter().map(|(kind, tenths)| {
            let ms = f64::from(*tenths) / 10.0;
            match kind {
                0 => format!("R{ms}"),
                1 => format!("S{ms}<100"),
                2 => format!("D{ms}+0.2"),
                _ => format!("Q{ms}"),
            }
        }).collect();
        let (features, _) = judge(&format!(
            "process 100 python
             process 200 pt_data_worker parent=100
             thread 100 100: (launch(0.1) R1 {})*4 launch(0.1) sync(2)
             thread 200 200: ({})*4",
            feeder.join(" "),
            worker.join(" "),
        ));
        let feeder = features.feeder.unwrap();
        prop_assert!((feeder.budget.total() - feeder.span_s).abs() < 1e-6);
        for part in Part::ALL {
            prop_assert!(feeder.budget.seconds(part) >= -1e-9, "{part:?} {:?}", feeder.budget);
            prop_assert!(
                feeder.exposed.seconds(part) <= feeder.budget.seconds(part) + 1e-9,
                "{part:?} {:?} {:?}", feeder.exposed, feeder.budget
            );
        }
    }
}
