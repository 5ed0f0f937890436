//! The features with the quantities that several rules derive from them.

use crate::features::{Contention, Cores, Features, Feeder, Loader, Part};

/// Below this part of wall time nothing is named: a false alarm is worse than silence.
pub(crate) const WORTH_NAMING: f64 = 0.05;

/// Parts in which the feeder waits for a loader worker.
pub(crate) const LOADER_WAITS: [Part; 4] = [
    Part::LoaderCompute,
    Part::LoaderCpuWait,
    Part::LoaderDisk,
    Part::LoaderSleep,
];

/// A job that gave the GPU work: what the rules judge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) feeder: &'a Feeder,
    pub(crate) loader: Option<&'a Loader>,
    pub(crate) cores: &'a Cores,
    pub(crate) contention: &'a Contention,
}

impl<'a> Case<'a> {
    /// `None` if there is no feeder with an active span.
    pub(crate) fn of(features: &'a Features) -> Option<Self> {
        let feeder = features
            .feeder
            .as_ref()
            .filter(|feeder| feeder.span_s > 0.0)?;
        Some(Self {
            feeder,
            loader: features.loader.as_ref(),
            cores: &features.cores,
            contention: &features.contention,
        })
    }

    /// Seconds as a part of the feeder's wall time.
    pub(crate) fn share(&self, seconds: f64) -> f64 {
        seconds / self.feeder.span_s
    }

    /// Exposed seconds of these parts: the GPU is not known to have had work then.
    pub(crate) fn exposed(&self, parts: &[Part]) -> f64 {
        self.feeder.exposed.sum(parts)
    }

    /// Exposed seconds that the host is to blame for.
    pub(crate) fn host_loss_s(&self) -> f64 {
        self.feeder.exposed.total() - self.exposed(&[Part::GpuWait, Part::Recorder, Part::Unknown])
    }

    /// Part of the wall time in which the feeder waited for the GPU.
    pub(crate) fn gpu_wait_share(&self) -> f64 {
        self.share(self.feeder.budget.seconds(Part::GpuWait))
    }

    /// Lower bound of the part of the time in which the GPU had nothing to do.
    pub(crate) fn gpu_idle_share(&self) -> f64 {
        self.share(self.feeder.gpu_idle_lower_bound_s)
    }

    /// How many CPUs the job's threads wanted, over how many it may use: 1 is a full machine.
    pub(crate) fn load_ratio(&self) -> f64 {
        let wanted = self.contention.job_run_s + self.contention.job_runq_s;
        wanted / (self.feeder.span_s * f64::from(self.cores.usable))
    }

    /// Of the time that the job's threads wanted a CPU, the part that they had none.
    pub(crate) fn queued_share(&self) -> f64 {
        let wanted = self.contention.job_run_s + self.contention.job_runq_s;
        if wanted > 0.0 {
            self.contention.job_runq_s / wanted
        } else {
            0.0
        }
    }

    /// Seconds per step.
    pub(crate) fn step_s(&self) -> f64 {
        self.feeder.span_s / (self.feeder.steps.max(1) as f64)
    }

    /// The upper bound of the speed-up when `share` of the wall time goes away.
    pub(crate) fn bound(share: f64) -> f64 {
        1.0 / (1.0 - share.min(0.99))
    }

    /// Where the count of usable CPUs comes from.
    pub(crate) fn cores_origin(&self) -> String {
        let Cores {
            online,
            affinity,
            quota,
            usable,
        } = self.cores;
        if quota.is_some_and(|quota| (quota.floor() as u32).max(1) == *usable && usable < online) {
            format!(
                "{usable} usable of {online} online CPUs, by the cgroup's CPU quota of {:.1}",
                quota.unwrap_or_default()
            )
        } else if affinity.is_some_and(|affinity| affinity == *usable && usable < online) {
            format!("{usable} usable of {online} online CPUs, by the affinity mask")
        } else {
            format!("{usable} usable CPUs, all that are online")
        }
    }
}

impl Loader {
    /// Part of their lives in which the workers were on a CPU.
    pub(crate) fn run_share(&self) -> f64 {
        self.part_of_life(self.run_s)
    }

    /// Part of their lives in which the workers were on a CPU or wanted one.
    pub(crate) fn busy_share(&self) -> f64 {
        self.part_of_life(self.run_s + self.runq_s)
    }

    fn part_of_life(&self, seconds: f64) -> f64 {
        if self.alive_s > 0.0 {
            // CPU time is known by bucket only, so it can exceed a short life a little.
            (seconds / self.alive_s).min(1.0)
        } else {
            0.0
        }
    }
}
