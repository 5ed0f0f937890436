//! The simple device under the stand-ins for CUDA libraries, so that real probes and real scheduler
//! events can be tested without a GPU.
//!
//! The device is one virtual stream: every stream handle means the same one. A launch costs 4 us of
//! CPU and queues as many microseconds as the grid is wide; synchronizing spins until the queue is
//! empty, as the real libraries do by default. No data is moved and device pointers are only numbers.
//!
//! A library that contains this crate has a device of its own.

pub mod driver;
mod memory;
mod timeline;

/// Exports functions that begin as those of the real libraries do, with `push %rbp`: what a probe costs
/// depends on the first instruction, and the compiler's own functions begin with anything. The jump
/// leaves registers and stack as the caller made them, so each is called as what it jumps to.
#[macro_export]
macro_rules! export {
    ($($name:ident => $inner:path,)*) => {
        $(
            /// As in the real library.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub extern "C" fn $name() {
                core::arch::naked_asm!(
                    "push rbp",
                    "mov rbp, rsp",
                    "pop rbp",
                    "jmp {inner}",
                    inner = sym $inner,
                )
            }
        )*
    };
}
