//! What this process may do.

use crate::procfs;

/// Rights that the recorder uses, by their number in `capabilities(7)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    /// To open `/proc/PID/map_files`.
    DacReadSearch = 2,
    /// To open `/proc/PID/root`.
    SysPtrace = 19,
    /// Includes the two below, and perf events on functions.
    SysAdmin = 21,
    Perfmon = 38,
    Bpf = 39,
}

/// The rights that are in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities(u64);

impl Capabilities {
    /// Those of this process; none if the kernel does not say.
    pub(crate) fn effective() -> Self {
        let status = procfs::read_lossy("/proc/self/status").unwrap_or_default();
        Self::parse(&status)
    }

    fn parse(status: &str) -> Self {
        let set = procfs::field(status, "CapEff")
            .and_then(|hexadecimal| u64::from_str_radix(hexadecimal, 16).ok());
        Self(set.unwrap_or(0))
    }

    pub(crate) fn has(self, capability: Capability) -> bool {
        self.0 >> capability as u32 & 1 != 0
    }

    /// Whether they suffice for the kernel programs.
    pub(crate) fn may_load_programs(self) -> bool {
        self.has(Capability::SysAdmin)
            || (self.has(Capability::Bpf) && self.has(Capability::Perfmon))
    }

    /// Whether they suffice to open the libraries that other users' processes have mapped.
    pub(crate) fn may_open_libraries(self) -> bool {
        self.has(Capability::SysPtrace) && self.has(Capability::DacReadSearch)
    }
}

#[cfg(test)]
impl Capabilities {
    pub(crate) fn of(capabilities: &[Capability]) -> Self {
        Self(capabilities.iter().map(|one| 1 << *one as u32).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Capability::{Bpf, DacReadSearch, Perfmon, SysAdmin, SysPtrace};

    #[test]
    fn the_set_is_read_from_the_status() {
        let status = "Name:\tx\nCapInh:\tffffffffffffffff\nCapEff:\t000000c000000000\n";
        let both = Capabilities::parse(status);
        assert_eq!(both, Capabilities::of(&[Bpf, Perfmon]));
        assert!(both.has(Bpf) && !both.has(SysAdmin));
        for unreadable in ["", "CapEff:\tnone\n"] {
            assert_eq!(Capabilities::parse(unreadable), Capabilities::of(&[]));
        }
    }

    #[test]
    fn half_of_what_is_needed_is_not_enough() {
        let may_load = |set: &[Capability]| Capabilities::of(set).may_load_programs();
        assert!(may_load(&[SysAdmin]) && may_load(&[Bpf, Perfmon]));
        assert!(!may_load(&[Bpf]) && !may_load(&[Perfmon, SysPtrace]));
        assert!(Capabilities::of(&[SysPtrace, DacReadSearch]).may_open_libraries());
        assert!(!Capabilities::of(&[SysAdmin, SysPtrace]).may_open_libraries());
    }
}
