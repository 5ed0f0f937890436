//! The features with the quantities that several rules derive from them.

use crate::features::{Budget, Contention, Cores, Features, Feeder, Loader, Part};

/// Below this part of wall time nothing is named: a false alarm is worse than silence.
pub(crate) const WORTH_NAMING: f64 = 0.05;

/// Parts in which the feeder waits for a loader worker.
pub(crate) const LOADER_WAITS: [Part; 4] = [
    Part::LoaderCompute,
    Part::LoaderCpuWait,
    Part::LoaderDisk,
    Part::LoaderSleep,
];

/// Parts in which a CPU is wanted and not had.
pub(crate) const QUEUED: [Part; 2] = [Part::CpuWait, Part::LoaderCpuWait];

/// A quota that stops the job in fewer of its periods than this is not what holds it back.
const THROTTLED: f64 = 0.1;
/// One that stops it in this part of its periods does, whoever uses the CPUs meanwhile.
const MOSTLY_THROTTLED: f64 = 0.5;
/// With this part of the CPUs outside its mask idle, the job could use more than it may.
const IDLE_OUTSIDE: f64 = 0.3;
/// One start of new workers may be the next phase of a job, such as its validation.
pub(crate) const FEWEST_STARTS: u64 = 2;
/// The first batches of an epoch are made side by side, and so take longer than later ones.
const SLACK: f64 = 1.25;
/// Less than this part of an ordinary wait is not told from its variation. Measured: a start that took
/// a third of a batch more than usual cost nothing (workers kept over the epochs: 0.85 to 1.07 times as
/// fast), one that took two batches more did (2.2 times as fast).
const JITTER: f64 = 0.5;
/// Workers that want a CPU for this part of their lives are never without work.
pub(crate) const NO_TIME_TO_SPARE: f64 = 0.7;
/// With this part of the CPUs idle, it is not for lack of CPUs that a thread waits for one.
const IDLE_CPUS: f64 = 0.5;
/// Who used this much of the CPUs meanwhile is why there were none.
const OTHERS: f64 = 0.4;
const JOB: f64 = 0.6;
/// Why a thread that was ready had no CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// It costs too little to be named.
    None,
    /// The job's own threads had the CPUs.
    Job,
    /// Processes outside the job had them.
    Neighbours,
    /// A CPU quota stopped the job while CPUs were idle.
    Quota,
    /// The job kept to the CPUs of its affinity mask, while others were idle.
    Mask,
    /// No one of these.
    Mixed,
}

/// A job that gave the GPU work: what the rules judge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) feeder: &'a Feeder,
    pub(crate) loader: Option<&'a Loader>,
    pub(crate) cores: &'a Cores,
    pub(crate) contention: &'a Contention,
    /// What the starts of new workers cost beyond ordinary batches, if that is worth naming.
    pub(crate) respawns: Option<Respawns>,
}

/// What the starts of new workers cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Respawns {
    /// Seconds that they cost beyond what the feeder would have waited anyway.
    pub(crate) cost_s: f64,
    /// All of the time around them.
    pub(crate) most_s: f64,
    /// What it would have waited for the workers at each start: as in an ordinary step, or for one
    /// batch.
    pub(crate) ordinary_s: f64,
}

impl<'a> Case<'a> {
    /// `None` if there is no feeder with an active span.
    pub(crate) fn of(features: &'a Features) -> Option<Self> {
        let feeder = features
            .feeder
            .as_ref()
            .filter(|feeder| feeder.span_s > 0.0)?;
        let mut case = Self {
            feeder,
            loader: features.loader.as_ref(),
            cores: &features.cores,
            contention: &features.contention,
            respawns: None,
        };
        let respawns = case.count_respawns();
        let worth_naming = case.share(respawns.cost_s) >= WORTH_NAMING;
        let ordinary_s = feeder.respawns as f64 * respawns.ordinary_s;
        let stands_out = respawns.cost_s >= JITTER * ordinary_s;
        case.respawns =
            (feeder.respawns >= FEWEST_STARTS && worth_naming && stands_out).then_some(respawns);
        Some(case)
    }

    fn count_respawns(&self) -> Respawns {
        let starts = self.feeder.respawns as f64;
        let steps = self.feeder.steps.max(1) as f64;
        let step_s = (self.host_loss_s() - self.respawn_s()) / steps;
        // Busy workers go from batch to batch; others also wait for somebody to want one.
        let batch_s = self.loader.map_or(0.0, |loader| {
            let computed_s = (loader.run_s + loader.disk_s) / steps;
            let busy = loader.busy_share() >= NO_TIME_TO_SPARE;
            let interval_s = self.feeder.batch_interval_s.filter(|_| busy);
            interval_s.unwrap_or(computed_s)
        });
        let ordinary_s = step_s.max(batch_s);
        // The feeder's own work in a start is ending old workers and forking new ones; its waits
        // for the new ones are partly those for any first batch.
        let waits_s = self.feeder.respawn.sum(&LOADER_WAITS);
        let own_s = self.respawn_s() - waits_s;
        let late_s = self.feeder.respawn_later_s;
        Respawns {
            cost_s: own_s + late_s + (waits_s - starts * SLACK * ordinary_s).max(0.0),
            most_s: own_s + late_s + waits_s,
            ordinary_s,
        }
    }

    /// Seconds as a part of the feeder's wall time.
    pub(crate) fn share(&self, seconds: f64) -> f64 {
        seconds / self.feeder.span_s
    }

    /// Exposed seconds of these parts: the GPU is not known to have had work then. What the starts
    /// of new workers cost is a cause of its own and not in it.
    pub(crate) fn exposed(&self, parts: &[Part]) -> f64 {
        let starts = self.respawns.map_or(0.0, |respawns| {
            (respawns.cost_s / self.respawn_s()).min(1.0) * self.feeder.respawn.sum(parts)
        });
        (self.feeder.exposed.sum(parts) - starts).max(0.0)
    }

    /// Exposed seconds that the host is to blame for, with the starts of new workers.
    pub(crate) fn host_loss_s(&self) -> f64 {
        Self::blamed(&self.feeder.exposed)
    }

    /// The same of the starts of new workers alone.
    pub(crate) fn respawn_s(&self) -> f64 {
        Self::blamed(&self.feeder.respawn)
    }

    fn blamed(exposed: &Budget) -> f64 {
        exposed.total() - exposed.sum(&[Part::GpuWait, Part::Recorder, Part::Unknown])
    }

    /// Exposed seconds in which the feeder, or a worker it waited for, was ready and had no CPU.
    pub(crate) fn queued_s(&self) -> f64 {
        self.exposed(&QUEUED)
    }

    /// Who had the CPUs that the job waited for, where that costs enough to be named.
    pub(crate) fn shortage(&self) -> Shortage {
        if self.share(self.queued_s()) < WORTH_NAMING {
            return Shortage::None;
        }
        let contention = self.contention;
        let throttled = self.throttled_share();
        if throttled >= MOSTLY_THROTTLED
            || throttled >= THROTTLED && contention.idle_share >= IDLE_CPUS
        {
            return Shortage::Quota;
        }
        let confined = contention
            .outside_idle_share
            .is_some_and(|idle| idle >= IDLE_OUTSIDE);
        // Inside a mask, where the others ran is told only by who took the CPU.
        let others = if contention.outside_idle_share.is_some() {
            contention.preempted_by_others.unwrap_or(0.0)
        } else {
            contention.other_share
        };
        if others >= OTHERS {
            Shortage::Neighbours
        } else if confined && contention.job_share >= JOB {
            Shortage::Mask
        } else if contention.job_share >= JOB {
            Shortage::Job
        } else {
            Shortage::Mixed
        }
    }

    /// Whether threads lack CPUs for a reason that is a cause of its own.
    pub(crate) fn lacks_cpus_for_another_reason(&self) -> bool {
        matches!(
            self.shortage(),
            Shortage::Neighbours | Shortage::Quota | Shortage::Mask
        )
    }

    /// Exposed seconds in which the feeder computed for long between its CUDA calls, and not only
    /// because it had waited for the GPU before.
    pub(crate) fn serial_s(&self) -> f64 {
        (self.exposed(&[Part::HostCompute]) - self.hideable_work_s()).max(0.0)
    }

    /// Exposed seconds of giving the GPU its work.
    pub(crate) fn launching_s(&self) -> f64 {
        self.exposed(&[Part::Submit])
    }

    /// Of the enforcement periods of the quota, the part in which the job was throttled.
    pub(crate) fn throttled_share(&self) -> f64 {
        match self.contention.throttled {
            Some(throttled) if throttled.periods > 0 => {
                throttled.throttled as f64 / throttled.periods as f64
            }
            _ => 0.0,
        }
    }

    /// Seconds of host work whose cost is that the host waited for the GPU before it, because it
    /// would have fitted behind the work that was waited for.
    pub(crate) fn hideable_work_s(&self) -> f64 {
        let readbacks = &self.feeder.readbacks;
        if self.share(readbacks.hideable_s) >= WORTH_NAMING {
            readbacks.own_s
        } else {
            0.0
        }
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
