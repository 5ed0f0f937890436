//! How many loader workers the job needs, and how many its CPUs can carry.
//!
//! c is the CPU time of the workers per batch, e the time one worker takes for a batch (computing
//! and waiting for the disk), G the step without its waits for the loader and for a CPU, and r the
//! CPUs that the feeder and the neighbours use. Then `need = ceil(1.1 e / G)` keeps the GPU fed,
//! and `cap = (usable - r) / (c / e)` is what the CPUs carry. The cap is rounded up: one worker
//! fewer would leave a part of a CPU idle, which costs more than a little competition does.

use crate::case::{Case, LOADER_WAITS};
use crate::features::Part;
use crate::output::Gain;

/// Workers must be this much faster than the GPU takes batches, so that jitter does not drain it.
const HEADROOM: f64 = 1.1;
/// A worker that would have less than this part of a CPU is not worth having. Measured on 4 CPUs of
/// a host with an H200, of which the feeder used little: 3 workers took 1.2 s for an epoch, 4 to 6
/// took 1.0 s, 8 took 1.25 s.
const LEAST_CPU: f64 = 0.1;

/// What the measured times say about the number of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WorkerCount {
    /// Workers there are.
    pub(crate) now: u32,
    /// Workers that would keep the GPU fed.
    pub(crate) need: u32,
    /// Workers that the CPUs carry.
    pub(crate) cap: u32,
    /// CPU seconds of the workers per step.
    pub(crate) cpu_per_step_s: f64,
    /// Seconds of a step without its waits for the loader and for a CPU.
    pub(crate) rest_of_step_s: f64,
    /// CPUs that the feeder and the neighbours use.
    pub(crate) taken_cpus: f64,
}

impl WorkerCount {
    /// Works it out; `None` without workers or steps.
    pub(crate) fn of(case: &Case<'_>) -> Option<Self> {
        let loader = case.loader?;
        let steps = case.feeder.steps;
        if steps == 0 || loader.run_s <= 0.0 {
            return None;
        }
        let steps = steps as f64;
        let cpu_per_step_s = loader.run_s / steps;
        let elapsed_per_step_s = (loader.run_s + loader.disk_s) / steps;
        // The feeder waits for a CPU because the workers have them: that is no work of the step.
        let budget = &case.feeder.budget;
        let waited_s = budget.sum(&LOADER_WAITS) + budget.seconds(Part::CpuWait);
        let rest_of_step_s = ((case.feeder.span_s - waited_s) / steps).max(1e-6);
        let span_s = case.feeder.span_s;
        let others_s =
            (case.contention.job_run_s - loader.run_s).max(0.0) + case.contention.other_run_s;
        let taken_cpus = others_s / span_s;
        let usable = f64::from(case.cores.usable);
        let cpus_per_worker = (cpu_per_step_s / elapsed_per_step_s).max(0.01);
        let cap = ((usable - taken_cpus).max(0.0) / cpus_per_worker - LEAST_CPU).ceil();
        Some(Self {
            now: loader.workers,
            need: (HEADROOM * elapsed_per_step_s / rest_of_step_s).ceil() as u32,
            cap: (cap as u32).max(1),
            cpu_per_step_s,
            rest_of_step_s,
            taken_cpus,
        })
    }

    /// The number to use.
    pub(crate) fn advised(&self) -> u32 {
        self.need.min(self.cap).max(1)
    }

    /// Whether no number of workers feeds the GPU.
    pub(crate) fn cpu_short(&self) -> bool {
        self.need > self.cap
    }

    /// Speed-up of the job with the advised number: the step is then as long as its other work,
    /// or as the loader takes with all its CPUs, whichever is longer.
    pub(crate) fn speedup(&self, case: &Case<'_>, bound: f64) -> Gain {
        let cpus = f64::from(self.advised()).min(f64::from(case.cores.usable) - self.taken_cpus);
        let loader_step_s = self.cpu_per_step_s / cpus.max(0.1);
        let step_s = loader_step_s.max(self.rest_of_step_s);
        let expected = (case.step_s() / step_s).clamp(1.0, bound);
        // The model knows nothing of caches and hand-over: half of what it promises is sure.
        Gain {
            low: 1.0 + (expected - 1.0) / 2.0,
            high: (expected * 1.15).min(bound).max(1.0),
        }
    }
}
