//! The kernel's events as they arrive: structs made from `bpf/events.h`, and how to read one.

/// A struct of the wire format.
pub(crate) trait WireRecord: aya::Pod {
    /// The record that `bytes` hold, or `None` if they are too few. More bytes are allowed: the
    /// ring rounds sizes up.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: there are enough bytes, every pattern of bits is a valid value of a Pod type,
        // and `read_unaligned` asks for no alignment.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

#[allow(dead_code)] // both sides know the whole header; some of it only the kernel's side uses
mod generated {
    use super::WireRecord;
    include!(concat!(env!("OUT_DIR"), "/events.rs"));
}
pub(crate) use generated::*;

/// A name of the kernel, up to its final zero.
pub(crate) fn comm_text(comm: &[u8]) -> String {
    let end = comm
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}
