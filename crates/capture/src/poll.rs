//! Waiting for several things at once: descriptors and signals.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

/// A set of descriptors to wait for.
#[derive(Debug)]
pub(crate) struct Poller(OwnedFd);

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes a number; the result is checked and owned by nobody else.
        unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }.map(Self)
    }

    /// Adds a descriptor. It is told with each new arrival and not again while something is left:
    /// a ring is never empty for long, and must not keep the recorder awake.
    pub(crate) fn add(&self, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: fd as u64,
        };
        // SAFETY: both descriptors are open, and `event` is valid for the call.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns after `timeout`, or as soon as a descriptor has something new.
    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        // Rounded up: a wait of 0 ms in a loop would spin.
        let milliseconds = timeout.as_micros().div_ceil(1000).min(60_000) as libc::c_int;
        // SAFETY: `events` has room for as many as are asked for.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                milliseconds,
            )
        };
        let error = io::Error::last_os_error();
        if count < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        Ok(())
    }
}

/// SIGINT and SIGTERM as a descriptor.
#[derive(Debug)]
pub(crate) struct Signals(OwnedFd);

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) number: libc::c_int,
    /// Typed on the terminal, which sends it to the recorded command as well.
    pub(crate) from_terminal: bool,
}

impl Signals {
    /// Blocks the signals for this thread and those it starts from now on.
    pub(crate) fn block() -> io::Result<Self> {
        // SAFETY: an all-zero set is valid memory for sigemptyset, which makes it a valid set.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            owned(libc::signalfd(
                -1,
                &set,
                libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
            ))
            .map(Self)
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The next signal that came, if any.
    pub(crate) fn next(&self) -> Option<Signal> {
        // SAFETY: all zero is a valid siginfo of numbers.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: `info` has room for `size` bytes.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
        (read == size as isize).then_some(Signal {
            number: info.ssi_signo as libc::c_int,
            from_terminal: info.ssi_code == libc::SI_KERNEL,
        })
    }
}

/// A process whose end can be waited for.
#[derive(Debug)]
pub(crate) struct ProcessFd(OwnedFd);

impl ProcessFd {
    /// Opens a process; it fails when it has ended and was waited for.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: takes numbers; the result is checked and owned by nobody else.
        unsafe { owned(libc::syscall(libc::SYS_pidfd_open, pid, 0) as libc::c_int) }.map(Self)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry, and no waiting.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }

    /// Sends a signal to this very process, never to a later one of the same number.
    pub(crate) fn signal(&self, number: libc::c_int) {
        // SAFETY: takes numbers and a null pointer. A process that has just ended needs no signal.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                number,
                std::ptr::null::<u8>(),
                0,
            )
        };
    }
}

/// # Safety
/// `fd` is negative, or open and owned by nobody.
unsafe fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
