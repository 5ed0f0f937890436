//! What a CUDA call does to the GPU's queue of work and to the thread that makes it.

/// What kind of call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// Gives the GPU kernels and returns.
    Launch,
    /// Waits for all work given before it, of a stream or of the device.
    Sync,
    /// Waits for a part of the work: up to an event.
    EventWait,
    /// A copy to the device.
    CopyToDevice,
    /// A copy to the host that waits for the work before it.
    CopyToHost,
    /// A copy to the host that waits only if the memory is pageable, which the call does not tell.
    CopyToHostAsync,
    /// Work for the GPU that is no kernel: a copy on the device, a memset.
    OtherWork,
    /// Allocates or registers memory, or frees it without waiting.
    Alloc,
    /// Frees memory, which waits for the work before it.
    Free,
    /// Anything else.
    Other,
}

impl CallKind {
    /// The kind of a call by its name, in the runtime or the driver, and by its direction if it
    /// is a copy.
    pub fn of(call: &str, direction: Option<&str>) -> Self {
        let has = |part: &str| call.contains(part);
        if has("Memcpy") {
            match direction {
                Some("h2d") => Self::CopyToDevice,
                Some("d2h" | "h2h") if has("Async") => Self::CopyToHostAsync,
                Some("d2h" | "h2h") => Self::CopyToHost,
                _ => Self::OtherWork,
            }
        } else if has("Launch") {
            Self::Launch
        } else if has("EventSynchronize") {
            Self::EventWait
        } else if has("Synchronize") {
            Self::Sync
        } else if has("Memset") {
            Self::OtherWork
        } else if has("Free") && !has("Async") {
            Self::Free
        } else if ["Alloc", "alloc", "Free", "HostRegister", "HostUnregister"]
            .iter()
            .any(|part| has(part))
        {
            Self::Alloc
        } else {
            Self::Other
        }
    }

    /// Whether the GPU has work after it that it need not have had before.
    pub fn enqueues(self) -> bool {
        matches!(
            self,
            Self::Launch
                | Self::CopyToDevice
                | Self::CopyToHost
                | Self::CopyToHostAsync
                | Self::OtherWork
        )
    }

    /// Whether the GPU has done all work, of its stream at least, when it returns.
    pub fn drains(self) -> bool {
        matches!(self, Self::Sync | Self::CopyToHost | Self::Free)
    }

    /// Whether it waits for the GPU whatever the GPU does.
    pub fn waits(self) -> bool {
        self.drains() || self == Self::EventWait
    }

    /// Whether it neither gives the GPU work nor waits for it.
    pub fn is_aside(self) -> bool {
        matches!(self, Self::Alloc | Self::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_both_layers_are_known_by_name_and_direction() {
        for (call, direction, kind) in [
            ("cudaLaunchKernel", None, CallKind::Launch),
            ("cudaLaunchKernelExC", None, CallKind::Launch),
            ("cuLaunchKernelEx", None, CallKind::Launch),
            ("cudaGraphLaunch", None, CallKind::Launch),
            ("cudaMemcpy", Some("h2d"), CallKind::CopyToDevice),
            ("cudaMemcpyAsync", Some("h2d"), CallKind::CopyToDevice),
            ("cuMemcpyHtoDAsync", Some("h2d"), CallKind::CopyToDevice),
            ("cudaMemcpy", Some("d2h"), CallKind::CopyToHost),
            ("cudaMemcpyAsync", Some("d2h"), CallKind::CopyToHostAsync),
            ("cudaMemcpyAsync", Some("d2d"), CallKind::OtherWork),
            ("cudaMemcpyAsync", None, CallKind::OtherWork),
            ("cudaMemsetAsync", None, CallKind::OtherWork),
            ("cuMemsetD32", None, CallKind::OtherWork),
            ("cudaStreamSynchronize", None, CallKind::Sync),
            ("cuCtxSynchronize", None, CallKind::Sync),
            ("cudaEventSynchronize", None, CallKind::EventWait),
            ("cudaMalloc", None, CallKind::Alloc),
            ("cudaMallocAsync", None, CallKind::Alloc),
            ("cuMemAlloc", None, CallKind::Alloc),
            ("cudaHostAlloc", None, CallKind::Alloc),
            ("cuMemHostRegister", None, CallKind::Alloc),
            ("cudaHostUnregister", None, CallKind::Alloc),
            ("cudaFreeAsync", None, CallKind::Alloc),
            ("cudaFree", None, CallKind::Free),
            ("cuMemFreeHost", None, CallKind::Free),
            ("cudaStreamQuery", None, CallKind::Other),
        ] {
            assert_eq!(CallKind::of(call, direction), kind, "{call} {direction:?}");
        }
    }
}
