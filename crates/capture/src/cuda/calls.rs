//! The calls that are recorded. To record another one, add a line.

use crate::wire::{self, CudaLayout};

/// Which kind of library a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Runtime,
    Driver,
}

impl Layer {
    /// As it is stored.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Driver => "driver",
        }
    }

    /// The layer that a library of this file name holds. Wheels put a hash into the name, as in
    /// `libcudart-d0da41ae.so.11.0`; the driver is never part of one.
    pub(crate) fn of_file_name(name: &str) -> Option<Self> {
        if name.starts_with("libcuda.so") {
            return Some(Self::Driver);
        }
        let rest = name.strip_prefix("libcudart")?;
        rest.contains(".so").then_some(Self::Runtime)
    }
}

/// What a library appends to a function's name where its default stream is another one.
const STREAM_SUFFIXES: [&str; 3] = ["", "_ptsz", "_ptds"];

/// One call: its name, and which of its arguments hold what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) layer: Layer,
    /// Without the suffixes of version and default stream.
    pub(crate) name: &'static str,
    /// Suffixes of the versions whose arguments lie so.
    versions: &'static [&'static str],
    layout: CudaLayout,
    /// Of a count of elements.
    element_bytes: u64,
    /// Of a copy whose name tells it.
    direction: Option<&'static str>,
}

const NOWHERE: u8 = wire::CUDA_NOWHERE as u8;
const IN_LAUNCH_CONFIG: u8 = wire::CUDA_IN_LAUNCH_CONFIG as u8;

/// The place of an argument on the stack, after those that fill the six registers.
const fn on_stack(slot: u8) -> u8 {
    wire::CUDA_ON_STACK as u8 + slot
}

/// Of cudaLaunchKernel: the function, two dim3 in two registers each, and the arguments fill the
/// registers; then come the bytes of shared memory and the stream.
const LAUNCH_STREAM: u8 = on_stack(1);
/// Of cuLaunchKernel: the function and five sizes of grid and block fill the registers; then come the
/// sixth, the bytes of shared memory and the stream.
const DRIVER_LAUNCH_STREAM: u8 = on_stack(2);

const fn runtime(name: &'static str) -> Call {
    Call {
        layer: Layer::Runtime,
        name,
        versions: &[""],
        layout: CudaLayout {
            bytes_place: NOWHERE,
            rows_place: NOWHERE,
            direction_place: NOWHERE,
            stream_place: NOWHERE,
        },
        element_bytes: 1,
        direction: None,
    }
}

const fn driver(name: &'static str) -> Call {
    Call {
        layer: Layer::Driver,
        ..runtime(name)
    }
}

impl Call {
    /// The versions to record, by their suffixes. Left out are the first versions of some driver
    /// functions, with sizes of 32 bits, which programs have not been built for since CUDA 3.2.
    const fn versions(mut self, suffixes: &'static [&'static str]) -> Self {
        self.versions = suffixes;
        self
    }

    const fn bytes(mut self, place: u8) -> Self {
        self.layout.bytes_place = place;
        self
    }

    /// So many elements, of so many bytes each.
    const fn elements(mut self, place: u8, bytes: u64) -> Self {
        self.element_bytes = bytes;
        self.bytes(place)
    }

    /// So many bytes in each of so many rows.
    const fn rows(mut self, width_place: u8, height_place: u8) -> Self {
        self.layout.rows_place = height_place;
        self.bytes(width_place)
    }

    /// Where the cudaMemcpyKind lies.
    const fn kind(mut self, place: u8) -> Self {
        self.layout.direction_place = place;
        self
    }

    const fn direction(mut self, direction: &'static str) -> Self {
        self.direction = Some(direction);
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

    /// The bytes of a call that was given this size.
    pub(crate) fn bytes_of(&self, size: u64) -> Option<i64> {
        let bytes = size.saturating_mul(self.element_bytes);
        (self.layout.bytes_place != NOWHERE).then(|| i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    /// The direction of a call that was given this cudaMemcpyKind.
    pub(crate) fn direction_of(&self, kind: u32) -> Option<&'static str> {
        if self.layout.direction_place == NOWHERE {
            return self.direction;
        }
        Some(match kind {
            0 => "h2h",
            1 => "h2d",
            2 => "d2h",
            3 => "d2d",
            4 => "default",
            // The call refuses other kinds.
            _ => return None,
        })
    }

    pub(crate) fn has_stream(&self) -> bool {
        self.layout.stream_place != NOWHERE
    }

    /// The names under which a library may export it.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = String> {
        self.versions.iter().flat_map(|version| {
            STREAM_SUFFIXES.map(|suffix| format!("{}{version}{suffix}", self.name))
        })
    }
}

const V2: &[&str] = &["_v2"];
const V1_AND_V2: &[&str] = &["", "_v2"];

/// All calls. A call's place in this list is its number in the kernel.
///
/// Not here: `__cudaLaunchKernel`, which programs call since CUDA 12.8, only jumps to cudaLaunchKernel;
/// the arguments of cudaMemPrefetchAsync depend on the version of the library.
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
    runtime("cudaMemcpy").bytes(2).kind(3),
    runtime("cudaMemcpyAsync").bytes(2).kind(3).stream(4),
    runtime("cudaMemcpy2D").rows(4, 5).kind(on_stack(0)),
    runtime("cudaMemcpy2DAsync")
        .rows(4, 5)
        .kind(on_stack(0))
        .stream(on_stack(1)),
    runtime("cudaMemcpyPeerAsync")
        .bytes(4)
        .direction("d2d")
        .stream(5),
    runtime("cudaMemset").bytes(2),
    runtime("cudaMemsetAsync").bytes(2).stream(3),
    runtime("cudaLaunchKernel").stream(LAUNCH_STREAM),
    runtime("cudaLaunchKernelExC").stream(IN_LAUNCH_CONFIG),
    runtime("cudaLaunchCooperativeKernel").stream(LAUNCH_STREAM),
    runtime("cudaGraphLaunch").stream(1),
    runtime("cudaStreamSynchronize").stream(0),
    runtime("cudaDeviceSynchronize"),
    runtime("cudaEventSynchronize"),
    driver("cuMemAlloc").versions(V2).bytes(1),
    driver("cuMemFree").versions(V2),
    driver("cuMemAllocAsync").bytes(1).stream(2),
    driver("cuMemFreeAsync").stream(1),
    driver("cuMemAllocManaged").bytes(1),
    driver("cuMemAllocHost").versions(V2).bytes(1),
    driver("cuMemHostAlloc").bytes(1),
    driver("cuMemFreeHost"),
    driver("cuMemHostRegister").versions(V1_AND_V2).bytes(1),
    driver("cuMemHostUnregister"),
    // PyTorch's expandable segments: physical memory, mapped into a range of addresses.
    driver("cuMemCreate").bytes(1),
    driver("cuMemMap"),
    driver("cuMemSetAccess"),
    driver("cuMemUnmap"),
    driver("cuMemRelease"),
    driver("cuMemcpy").bytes(2).direction("default"),
    driver("cuMemcpyAsync")
        .bytes(2)
        .direction("default")
        .stream(3),
    driver("cuMemcpyHtoD")
        .versions(V2)
        .bytes(2)
        .direction("h2d"),
    driver("cuMemcpyHtoDAsync")
        .versions(V2)
        .bytes(2)
        .direction("h2d")
        .stream(3),
    driver("cuMemcpyDtoH")
        .versions(V2)
        .bytes(2)
        .direction("d2h"),
    driver("cuMemcpyDtoHAsync")
        .versions(V2)
        .bytes(2)
        .direction("d2h")
        .stream(3),
    driver("cuMemcpyDtoD")
        .versions(V2)
        .bytes(2)
        .direction("d2d"),
    driver("cuMemcpyDtoDAsync")
        .versions(V2)
        .bytes(2)
        .direction("d2d")
        .stream(3),
    driver("cuMemsetD8").versions(V2).bytes(2),
    driver("cuMemsetD8Async").bytes(2).stream(3),
    driver("cuMemsetD16").versions(V2).elements(2, 2),
    driver("cuMemsetD16Async").elements(2, 2).stream(3),
    driver("cuMemsetD32").versions(V2).elements(2, 4),
    driver("cuMemsetD32Async").elements(2, 4).stream(3),
    driver("cuLaunchKernel").stream(DRIVER_LAUNCH_STREAM),
    driver("cuLaunchKernelEx").stream(IN_LAUNCH_CONFIG),
    driver("cuLaunchCooperativeKernel").stream(DRIVER_LAUNCH_STREAM),
    driver("cuGraphLaunch").stream(1),
    driver("cuStreamSynchronize").stream(0),
    driver("cuCtxSynchronize").versions(V1_AND_V2),
    driver("cuEventSynchronize"),
];

/// The recorder's own call in the self-test.
pub(crate) const SELF_TEST_LAYOUT: CudaLayout = runtime("self-test").bytes(0).layout;

const _: () = assert!(CALLS.len() < wire::CUDA_SELF_TEST as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_name() {
        for name in [
            "libcudart.so",
            "libcudart.so.12",
            "libcudart-d0da41ae.so.11.0",
            "libcudart.so.12 (deleted)",
        ] {
            assert_eq!(Layer::of_file_name(name), Some(Layer::Runtime), "{name}");
        }
        for name in ["libcuda.so", "libcuda.so.1", "libcuda.so.580.159.04"] {
            assert_eq!(Layer::of_file_name(name), Some(Layer::Driver), "{name}");
        }
        for name in [
            "libcudart_static.a",
            "libcudadebugger.so.1",
            "cudart.so",
            "libcudnn.so.9",
            "",
        ] {
            assert_eq!(Layer::of_file_name(name), None, "{name}");
        }
    }

    #[test]
    fn every_symbol_is_of_one_call_and_every_place_is_known_to_the_program() {
        let mut symbols: Vec<_> = CALLS.iter().flat_map(Call::symbols).collect();
        let count = symbols.len();
        symbols.sort_unstable();
        symbols.dedup();
        assert_eq!(symbols.len(), count);
        const LAST_REGISTER: u8 = 5;
        for call in CALLS {
            let CudaLayout {
                bytes_place,
                rows_place,
                direction_place,
                stream_place,
            } = call.layout();
            for place in [bytes_place, rows_place, direction_place, stream_place] {
                assert!(
                    place <= LAST_REGISTER || u32::from(place) >= wire::CUDA_ON_STACK,
                    "{}",
                    call.name
                );
            }
        }
    }

    #[test]
    fn sizes_and_directions_become_columns() {
        let call = |name| CALLS.iter().find(|call| call.name == name).unwrap();
        assert_eq!(call("cuMemsetD32").bytes_of(10), Some(40));
        assert_eq!(call("cuMemsetD32").bytes_of(u64::MAX), Some(i64::MAX));
        assert_eq!(call("cuMemFree").bytes_of(10), None);
        assert_eq!(call("cuMemcpyDtoH").direction_of(0), Some("d2h"));
        assert_eq!(call("cudaMemcpy").direction_of(1), Some("h2d"));
        assert_eq!(call("cudaMemcpy").direction_of(9), None);
        assert_eq!(call("cudaMemset").direction_of(1), None);
    }
}
