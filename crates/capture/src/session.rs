//! A recording that goes on: drains the rings into rows, and stores them.

use crate::cgroup;
use crate::cpu_time::{BUCKET_NS, CpuTimes};
use crate::cuda::CudaProbes;
use crate::error::RecordError;
use crate::host::Limits;
use crate::kernel::{self, Kernel};
use crate::lost::{self, LostCounts};
use crate::off_cpu::OpenWaits;
use crate::processes::{self, LifeEvent, Processes};
use crate::progress::Figures;
use crate::target::Existing;
use crate::wire::{self, OffCpuEvent, RunEvent, ThreadState, WireRecord as _};
use crate::{clock, host, pages, procfs, samples, self_test};
use ingero_trace::{Probe, TraceInfo, TraceWriter, WriteStats};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// A killed recorder loses at most 2 s: this, one tick, and the time to write.
const FLUSH_EVERY: Duration = Duration::from_millis(1700);
/// A process that ended switches for the last time well within this.
const LAST_SWITCH_NS: u64 = 1_000_000_000;

/// Everything that a recording keeps.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) kernel: Kernel,
    /// Or why CUDA calls cannot be recorded here.
    cuda: Result<CudaProbes, String>,
    writer: TraceWriter,
    info: TraceInfo,
    limits: Limits,
    start_ns: u64,
    processes: Processes,
    waits: OpenWaits,
    cpu_times: CpuTimes,
    lost: LostCounts,
    lost_total: u64,
    undecoded: u64,
    last_flush: Instant,
    recorder_cpu_at_start_ns: i64,
    failed: Option<RecordError>,
}

impl Session {
    /// Goes on from a started kernel side. `info` is complete but for its progress.
    pub(crate) fn new(
        kernel: Kernel,
        cuda: Result<CudaProbes, String>,
        writer: TraceWriter,
        info: TraceInfo,
        limits: Limits,
        start_ns: u64,
    ) -> Self {
        Self {
            kernel,
            cuda,
            writer,
            info,
            limits,
            start_ns,
            processes: Processes::default(),
            waits: OpenWaits::default(),
            cpu_times: CpuTimes::new(start_ns),
            lost: LostCounts::default(),
            lost_total: 0,
            undecoded: 0,
            last_flush: Instant::now(),
            recorder_cpu_at_start_ns: clock::own_cpu_ns(),
            failed: None,
        }
    }

    /// Writes the rows of threads that were there before the recording.
    pub(crate) fn add_existing(&mut self, existing: &[Existing]) {
        for thread in existing.iter().filter(|thread| thread.tid == thread.pid) {
            self.processes.add(thread.pid);
            if let Ok(cuda) = &mut self.cuda {
                cuda.scan_process(thread.pid);
            }
        }
        // Births that the kernel reported while `/proc` was read are told by their events.
        let events = self.take_life_events();
        for row in processes::existing_rows(existing, &events, self.start_ns) {
            self.writer.push(row);
        }
        self.push_life_events(&events);
    }

    /// Ten times a second: empties the rings, and samples.
    pub(crate) fn tick(&mut self) -> Result<(), RecordError> {
        self.drain();
        self.sample();
        self.count_lost()?;
        let now = clock::monotonic_ns();
        for pid in self
            .processes
            .take_ended(now.saturating_sub(LAST_SWITCH_NS))
        {
            // A new process may have the number already, and may be a target itself.
            if self
                .kernel
                .targets
                .get(&(pid as u32), 0)
                .is_ok_and(|target| target.exited != 0)
            {
                self.kernel.remove_target(pid);
            }
        }
        if self.last_flush.elapsed() >= FLUSH_EVERY || self.writer.due() {
            self.flush()?;
        }
        Ok(())
    }

    /// Empties the rings.
    pub(crate) fn drain(&mut self) {
        while let Some(item) = self.kernel.off_cpu_ring.next() {
            match OffCpuEvent::from_bytes(&item) {
                Some(event) => self.writer.push(self.waits.finished(&event, self.start_ns)),
                None => self.undecoded += 1,
            }
        }
        while let Some(item) = self.kernel.run_ring.next() {
            match RunEvent::from_bytes(&item) {
                Some(event) => self.cpu_times.add_run(&event),
                None => self.undecoded += 1,
            }
        }
        let events = self.take_life_events();
        self.push_life_events(&events);
        if let Ok(cuda) = &mut self.cuda {
            let targets = &self.kernel.targets;
            cuda.poll_libraries(&|pid| targets.get(&(pid as u32), 0).is_ok());
            cuda.drain(self.start_ns, &mut self.writer);
        }
    }

    /// Descriptors that become readable when there is something to drain.
    pub(crate) fn fds(&self) -> Vec<RawFd> {
        let mut fds = self.kernel.ring_fds().to_vec();
        if let Ok(cuda) = &self.cuda {
            fds.extend(cuda.mmap_fds());
            fds.push(cuda.ring_fd());
        }
        fds
    }

    fn take_life_events(&mut self) -> Vec<LifeEvent> {
        let mut events = Vec::new();
        while let Some(item) = self.kernel.process_ring.next() {
            match processes::decode_event(&item) {
                Some(event) => events.push(event),
                None => self.undecoded += 1,
            }
        }
        events
    }

    fn push_life_events(&mut self, events: &[LifeEvent]) {
        for event in events {
            self.processes.apply(event);
        }
        for row in processes::rows(events, self.start_ns) {
            self.writer.push(row);
        }
    }

    fn sample(&mut self) {
        for pid in self.processes.alive() {
            let ts_ns = self.since_start(clock::monotonic_ns());
            // A process that is just ending has no sample any more.
            if let Some(row) = samples::process(pid, ts_ns) {
                self.writer.push(row);
            }
        }
        self.follow_affinity();
        let ts_ns = self.since_start(clock::monotonic_ns());
        if let Some(row) = samples::system(ts_ns, self.limits.quota.as_ref()) {
            self.writer.push(row);
        }
    }

    /// A launcher or the job itself may confine the job only after it has started.
    fn follow_affinity(&mut self) {
        let Some(affinity) = host::affinity_of(self.info.target_pid) else {
            return;
        };
        let quota = self.limits.quota.as_ref();
        self.info.cores_usable = host::cores_usable(self.info.cores_online, Some(&affinity), quota);
        self.info.cores_affinity = Some(affinity.cores);
        self.info.affinity_cpus = Some(affinity.cpus);
    }

    /// The same for the CPU quota of its cgroup, less often, as it takes several files to find.
    fn follow_quota(&mut self) {
        let quota = cgroup::quota_of(self.info.target_pid);
        // Of a process that has ended, the last one stays.
        if quota.is_some() {
            self.info.cgroup_quota_cores = quota.as_ref().map(|quota| quota.cores);
            self.limits.quota = quota;
        }
    }

    fn count_lost(&mut self) -> Result<(), RecordError> {
        let now = self.since_start(clock::monotonic_ns()) as u64;
        let totals = self.lost_totals()?;
        for (class, total) in totals {
            self.lost.update(class, total, now);
        }
        for row in self.lost.take() {
            if row.class != lost::SWITCH_IN {
                self.lost_total += row.count as u64;
            }
            self.writer.push(row);
        }
        Ok(())
    }

    fn lost_totals(&self) -> Result<[(&'static str, u64); 7], RecordError> {
        let cuda = match &self.cuda {
            Ok(cuda) => cuda.lost()?,
            Err(_) => 0,
        };
        Ok([
            ("cuda", cuda),
            ("off_cpu", self.kernel.lost(wire::LOST_OFF_CPU)?),
            (lost::SWITCH_IN, self.kernel.lost(wire::LOST_SWITCH_IN)?),
            ("process", self.kernel.lost(wire::LOST_PROCESS)?),
            ("cpu_time", self.kernel.lost(wire::LOST_CPU_TIME)?),
            ("page_allocs", self.kernel.lost(wire::LOST_PAGE_ALLOCS)?),
            ("decode", self.undecoded),
        ])
    }

    /// Starts recording. What was lost before is nothing lost.
    pub(crate) fn start(&mut self) -> Result<(), RecordError> {
        self.kernel.start(self.start_ns)?;
        for (class, total) in self.lost_totals()? {
            self.lost.forgive(class, total);
        }
        Ok(())
    }

    /// Waits until the kernel has reported the last switch of a thread that has ended.
    pub(crate) fn await_last_switch(&mut self, tid: i32) {
        let deadline = Instant::now() + Duration::from_millis(500);
        while self.kernel.thread(tid as u32).is_some() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stores what there is, also of what goes on.
    fn flush(&mut self) -> Result<(), RecordError> {
        self.last_flush = Instant::now();
        let now_ns = clock::monotonic_ns();
        let closed = self.cpu_times.bucket(now_ns);
        let closed_pages = pages::bucket(self.since_start(now_ns));
        // After this, no program adds to a closed bucket any more.
        kernel::wait_for_programs();
        let border_ns = self.start_ns + closed * BUCKET_NS;
        self.gather_cpu_times(closed, border_ns)?;
        let until_ns = clock::monotonic_ns();
        self.drain();
        self.push_open(until_ns);
        self.push_cpu_times(closed);
        self.push_page_allocs(closed_pages)?;
        self.info.duration_ns = self.since_start(border_ns);
        self.follow_quota();
        self.store();
        Ok(())
    }

    /// Ends the recording and completes the trace.
    pub(crate) fn finish(
        mut self,
        reason: &str,
        exit_status: Option<i32>,
    ) -> Result<(WriteStats, Figures), RecordError> {
        let end_ns = clock::monotonic_ns();
        self.kernel.stop()?;
        let every_bucket = self.cpu_times.bucket(end_ns) + 1;
        self.gather_cpu_times(every_bucket, end_ns)?;
        self.drain();
        self.push_open(end_ns);
        self.push_cpu_times(every_bucket);
        self.push_page_allocs(pages::EVERY_BUCKET)?;
        self.count_lost()?;
        self_test::check_idle(&mut self.kernel)?;
        self.info.duration_ns = self.since_start(end_ns);
        self.info.ended = true;
        self.info.end_reason = Some(reason.to_owned());
        self.info.exit_status = exit_status;
        self.complete_info();
        let mut figures = self.figures();
        let stats = self.writer.finish(&self.info)?;
        figures.bytes = stats.bytes;
        match self.failed {
            Some(error) => Err(error),
            None => Ok((stats, figures)),
        }
    }

    /// What was recorded so far, for the progress line.
    pub(crate) fn figures(&self) -> Figures {
        let stats = self.writer.stats();
        let seconds = self.since_start(clock::monotonic_ns()) as f64 / 1e9;
        let cpu_s = (clock::own_cpu_ns() - self.recorder_cpu_at_start_ns) as f64 / 1e9;
        Figures {
            seconds,
            events: stats.rows,
            lost: self.lost_total,
            bytes: stats.bytes,
            recorder_cpu: cpu_s / seconds.max(1e-9),
            recorder_bytes: procfs::own_peak_bytes(),
        }
    }

    /// Adds the sums of buckets before `closed`, and the runs that go on, as far as `until_ns`.
    /// The runs before the ring is drained: one that ends in between is then told without what
    /// was credited, and none is missed.
    fn gather_cpu_times(&mut self, closed: u64, until_ns: u64) -> Result<(), RecordError> {
        for (cpu, run) in self.kernel.current_runs()?.into_iter().enumerate() {
            if run.tid != 0 && run.since_ns != 0 {
                let name = procfs::stat(run.pid)
                    .map(|stat| stat.comm)
                    .unwrap_or_default();
                self.cpu_times
                    .credit_running(cpu as i32, run, until_ns, &name);
            }
        }
        let keys: Vec<_> = self.kernel.cpu_time.keys().filter_map(Result::ok).collect();
        for key in keys
            .into_iter()
            .filter(|key| u64::from(key.bucket) < closed)
        {
            // Nobody else removes keys, and no program writes this one any more.
            let value = self.kernel.cpu_time.get(&key, 0).map_err(cpu_time_map)?;
            self.kernel.cpu_time.remove(&key).map_err(cpu_time_map)?;
            self.cpu_times.add_bucket(key, &value);
        }
        Ok(())
    }

    fn push_cpu_times(&mut self, closed: u64) {
        for row in self.cpu_times.take_before(closed) {
            self.writer.push(row);
        }
    }

    fn push_page_allocs(&mut self, closed: u64) -> Result<(), RecordError> {
        for row in pages::take(&mut self.kernel, closed)? {
            self.writer.push(row);
        }
        Ok(())
    }

    /// Writes the calls and waits that go on, up to `until_ns`. To be called after draining.
    fn push_open(&mut self, until_ns: u64) {
        if let Ok(cuda) = &mut self.cuda {
            cuda.flush_open(until_ns, self.start_ns, &mut self.writer);
        }
        self.push_open_waits(until_ns);
    }

    /// Writes the waits that go on, up to `until_ns`.
    fn push_open_waits(&mut self, until_ns: u64) {
        for tid in self.kernel.thread_ids() {
            let Some(thread) = self.kernel.thread(tid) else {
                continue; // ended meanwhile
            };
            let tid = tid as i32;
            if thread.phase == wire::PHASE_UNKNOWN && !self.is_waiting(&thread, tid) {
                continue;
            }
            if let Some(row) = self.waits.open_piece(&thread, tid, until_ns, self.start_ns) {
                self.writer.push(row);
            }
        }
    }

    /// Whether a thread that was never seen switching waits; else it is on a CPU all the time.
    fn is_waiting(&self, thread: &ThreadState, tid: i32) -> bool {
        self.waits.has_piece(tid, thread.off_ns)
            || thread.wake_ns > thread.off_ns
            || procfs::thread_stat(thread.pid, tid).is_some_and(|stat| stat.state != 'R')
    }

    fn store(&mut self) {
        self.complete_info();
        if let Err(error) = self.writer.flush(&self.info) {
            // The job goes on, and so does what can still be stored; the exit code tells.
            if self.failed.is_none() {
                crate::terminal::warn(&format!("cannot write the trace: {error}"));
            }
            self.failed.get_or_insert(error.into());
        }
    }

    fn complete_info(&mut self) {
        self.info.ts_ns = self.since_start(clock::monotonic_ns());
        self.info.recorder_cpu_ns = clock::own_cpu_ns();
        self.info.probes = self.kernel.probes.clone();
        match &self.cuda {
            Ok(cuda) => {
                self.info.probes.extend(cuda.probes());
                self.info.cuda_libraries = cuda.libraries().join(", ");
            }
            Err(reason) => self.info.probes.push(Probe {
                name: "cuda".to_owned(),
                attached: false,
                reason: Some(reason.clone()),
            }),
        }
    }

    fn since_start(&self, at_ns: u64) -> i64 {
        at_ns as i64 - self.start_ns as i64
    }
}

fn cpu_time_map(source: aya::maps::MapError) -> RecordError {
    kernel::KernelError::Map {
        name: "cpu_time",
        source,
    }
    .into()
}
