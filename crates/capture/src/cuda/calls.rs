//! The calls that are recorded. To record another one, add a line.

use crate::wire::{self, CudaLayout};

/// Which kind of library a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Runtime,
}

impl Layer {
    /// As it is stored.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
        }
    }

    /// What a library may append to a call's name for another default stream.
    fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Runtime => &["", "_ptsz", "_ptds"],
        }
    }

    /// The layer that a library of this file name holds. Wheels put a hash into the name, as in
    /// `libcudart-d0da41ae.so.11.0`.
    pub(crate) fn of_file_name(name: &str) -> Option<Self> {
        let is_shared = |rest: &str| rest.contains(".so");
        name.strip_prefix("libcudart")
            .is_some_and(is_shared)
            .then_some(Self::Runtime)
    }
}

/// One call: its name, and which of its arguments hold what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) layer: Layer,
    pub(crate) name: &'static str,
    layout: CudaLayout,
}

const NONE: u8 = wire::CUDA_NO_ARGUMENT as u8;
/// Of cudaLaunchKernel: the function, two dim3 in two registers each, and the arguments fill the
/// registers; then the bytes of shared memory and the stream are on the stack.
const LAUNCH_STREAM: u8 = wire::CUDA_STREAM_STACK as u8 + 1;
const LAUNCH_CONFIG_STREAM: u8 = wire::CUDA_STREAM_LAUNCH_CONFIG as u8;

const fn runtime(name: &'static str) -> Call {
    Call {
        layer: Layer::Runtime,
        name,
        layout: CudaLayout {
            bytes_argument: NONE,
            direction_argument: NONE,
            stream_place: NONE,
            reserved: 0,
        },
    }
}

impl Call {
    const fn bytes(mut self, argument: u8) -> Self {
        self.layout.bytes_argument = argument;
        self
    }

    const fn direction(mut self, argument: u8) -> Self {
        self.layout.direction_argument = argument;
        self
    }

    const fn stream(mut self, place: u8) -> Self {
        self.layout.stream_place = place;
        self
    }

    /// Where the kernel's program finds the arguments.
    pub(crate) fn layout(&self) -> CudaLayout {
        self.layout
    }

    pub(crate) fn has_bytes(&self) -> bool {
        self.layout.bytes_argument != NONE
    }

    pub(crate) fn has_direction(&self) -> bool {
        self.layout.direction_argument != NONE
    }

    pub(crate) fn has_stream(&self) -> bool {
        self.layout.stream_place != NONE
    }

    /// The names under which a library may export it.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = String> {
        self.layer
            .suffixes()
            .iter()
            .map(|suffix| format!("{}{suffix}", self.name))
    }
}

/// All calls. A call's place in this list is its number in the kernel.
pub(crate) const CALLS: &[Call] = &[
    runtime("cudaMalloc").bytes(1),
    runtime("cudaFree"),
    runtime("cudaMallocAsync").bytes(1).stream(2),
    runtime("cudaFreeAsync").stream(1),
    runtime("cudaMallocManaged").bytes(1),
    runtime("cudaHostAlloc").bytes(1),
    runtime("cudaMallocHost").bytes(1),
    runtime("cudaFreeHost"),
    runtime("cudaHostRegister").bytes(1),
    runtime("cudaHostUnregister"),
    runtime("cudaMemcpy").bytes(2).direction(3),
    runtime("cudaMemcpyAsync").bytes(2).direction(3).stream(4),
    runtime("cudaMemset").bytes(2),
    runtime("cudaMemsetAsync").bytes(2).stream(3),
    runtime("cudaLaunchKernel").stream(LAUNCH_STREAM),
    runtime("cudaLaunchKernelExC").stream(LAUNCH_CONFIG_STREAM),
    runtime("cudaGraphLaunch").stream(1),
    runtime("cudaStreamSynchronize").stream(0),
    runtime("cudaDeviceSynchronize"),
    runtime("cudaEventSynchronize"),
];

/// The recorder's own call in the self-test.
pub(crate) const SELF_TEST_LAYOUT: CudaLayout = runtime("self-test").bytes(0).layout;

const _: () = assert!(CALLS.len() < wire::CUDA_SELF_TEST as usize);

/// The direction of a copy, by cudaMemcpyKind. The call refuses other kinds.
pub(crate) fn direction_name(kind: u32) -> Option<&'static str> {
    Some(match kind {
        0 => "h2h",
        1 => "h2d",
        2 => "d2h",
        3 => "d2d",
        4 => "default",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_libraries_are_known_by_name() {
        for name in [
            "libcudart.so",
            "libcudart.so.12",
            "libcudart-d0da41ae.so.11.0",
            "libcudart.so.12 (deleted)",
        ] {
            assert_eq!(Layer::of_file_name(name), Some(Layer::Runtime), "{name}");
        }
        for name in [
            "libcudart_static.a",
            "libcuda.so.1",
            "cudart.so",
            "libcudnn.so.9",
            "",
        ] {
            assert_eq!(Layer::of_file_name(name), None, "{name}");
        }
    }

    #[test]
    fn every_call_is_listed_once_and_reads_only_register_arguments_that_the_program_knows() {
        let mut names: Vec<_> = CALLS.iter().map(|call| call.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CALLS.len());
        const LAST_ARGUMENT: u8 = 4;
        for call in CALLS {
            let layout = call.layout();
            for argument in [layout.bytes_argument, layout.direction_argument] {
                assert!(
                    argument <= LAST_ARGUMENT || argument == NONE,
                    "{}",
                    call.name
                );
            }
            let place = layout.stream_place;
            assert!(
                place <= LAST_ARGUMENT || u32::from(place) >= wire::CUDA_STREAM_STACK,
                "{}",
                call.name
            );
        }
    }
}
