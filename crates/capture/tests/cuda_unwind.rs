//! Calls that a thread leaves without returning: by unwinding its stack, or by ending. None of them may
//! keep later calls of the process from being recorded.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod support;

use ingero_testkit::{cudart, live_lock, needs_root_and_bpf};
use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::cuda::{calls, lost};
use support::{Recording, WORKLOAD, expect_status};

type Launch = extern "C" fn(*const c_void, Dim3, Dim3, *const c_void, usize, usize) -> c_int;
type Synchronize = extern "C" fn() -> c_int;

/// A grid or block.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

/// Functions of the runtime.
#[derive(Clone, Copy)]
struct Runtime {
    launch: Launch,
    synchronize: Synchronize,
}

impl Runtime {
    fn load() -> Self {
        let path = CString::new(std::env::var("CUDART").unwrap()).unwrap();
        // SAFETY: the library is the stand-in, and its functions have these types.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            let find = |name: &std::ffi::CStr| libc::dlsym(library, name.as_ptr());
            Self {
                launch: std::mem::transmute::<*mut c_void, Launch>(find(c"cudaLaunchKernel")),
                synchronize: std::mem::transmute::<*mut c_void, Synchronize>(find(
                    c"cudaDeviceSynchronize",
                )),
            }
        }
    }

    fn launch(self, kernel_us: u32) {
        let size = |x| Dim3 { x, y: 1, z: 1 };
        let (grid, block) = (size(kernel_us), size(1));
        assert_eq!(
            (self.launch)(std::ptr::null(), grid, block, std::ptr::null(), 0, 0),
            0
        );
    }
}

/// Stack pointer and code that [`call_or_unwind`] goes on with when its callee is left.
static LANDING_STACK: AtomicU64 = AtomicU64::new(0);
static LANDING_CODE: AtomicU64 = AtomicU64::new(0);

/// Calls a function that returns, or is left by [`unwind`].
#[unsafe(naked)]
extern "C" fn call_or_unwind(_function: Synchronize) {
    core::arch::naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "sub rsp, 8",
        "mov [rip + {stack}], rsp",
        "lea rax, [rip + 2f]",
        "mov [rip + {code}], rax",
        "call rdi",
        "2: add rsp, 8",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        stack = sym LANDING_STACK,
        code = sym LANDING_CODE,
    )
}

/// Calls a function from further down the stack. The bytes between are left as they are.
#[unsafe(naked)]
extern "C" fn call_below_a_hole(_function: extern "C" fn()) {
    core::arch::naked_asm!("sub rsp, 4104", "call rdi", "add rsp, 4104", "ret")
}

/// The same, and the bytes between are set to zero.
#[unsafe(naked)]
extern "C" fn call_below_zeros(_function: extern "C" fn()) {
    core::arch::naked_asm!(
        "mov rdx, rdi",
        "sub rsp, 4104",
        "mov rdi, rsp",
        "mov ecx, 4104",
        "xor eax, eax",
        "rep stosb",
        "call rdx",
        "add rsp, 4104",
        "ret",
    )
}

/// Handler of a signal: the interrupted thread goes on at the landing.
extern "C" fn unwind(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context to a handler with SA_SIGINFO.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RSP as usize] = LANDING_STACK.load(Ordering::Relaxed) as i64;
    registers[libc::REG_RIP as usize] = LANDING_CODE.load(Ordering::Relaxed) as i64;
}

/// Handler of a signal: the thread ends where it is.
extern "C" fn end_thread(_signal: c_int, _info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: ends the thread; nothing waits for its Rust side.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

fn handle(signal: c_int, handler: Handler) {
    // SAFETY: zero is a valid action but for its handler, which has the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Waits in the runtime for work of a second, and leaves it by `signal` before it is done.
fn leave_synchronize(runtime: Runtime, signal: c_int, landing: bool) {
    runtime.launch(1_000_000);
    LANDING_CODE.store(0, Ordering::Relaxed);
    // SAFETY: takes nothing and returns a number.
    let (pid, tid) = unsafe { (libc::getpid(), libc::gettid()) };
    std::thread::spawn(move || {
        while landing && LANDING_CODE.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(200));
        // SAFETY: takes numbers; the thread is in the call.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
    });
    if landing {
        call_or_unwind(runtime.synchronize);
    } else {
        (runtime.synchronize)();
    }
}

extern "C" fn unwind_out_of_synchronize() {
    leave_synchronize(Runtime::load(), libc::SIGUSR1, true);
}

const LAUNCHES: usize = 1500;

extern "C" fn launch_often() {
    let runtime = Runtime::load();
    for _ in 0..LAUNCHES {
        runtime.launch(0);
    }
}

/// What the recorder records when it runs this program.
#[test]
fn workload() {
    let Ok(name) = std::env::var(WORKLOAD) else {
        return;
    };
    let runtime = Runtime::load();
    handle(libc::SIGUSR1, unwind);
    handle(libc::SIGUSR2, end_thread);
    match name.as_str() {
        "unwind" => {
            unwind_out_of_synchronize();
            launch_often();
        }
        "unwind, then below" => {
            unwind_out_of_synchronize();
            call_below_zeros(launch_often);
        }
        "unwind from below" => {
            call_below_a_hole(unwind_out_of_synchronize);
            launch_often();
        }
        "unwind, then below an old frame" => {
            unwind_out_of_synchronize();
            call_below_a_hole(launch_often);
        }
        "end" => {
            let thread = std::thread::spawn(move || {
                // SAFETY: takes nothing and returns a number.
                let tid = unsafe { libc::gettid() };
                TID.store(tid as u64, Ordering::Relaxed);
                leave_synchronize(runtime, libc::SIGUSR2, false);
            });
            // It never returns to what `join` waits for.
            std::mem::forget(thread);
            let ended = || {
                let tid = TID.load(Ordering::Relaxed);
                tid != 0 && !std::path::Path::new(&format!("/proc/self/task/{tid}")).exists()
            };
            while !ended() {
                std::thread::sleep(Duration::from_millis(10));
            }
            launch_often();
        }
        other => panic!("no workload {other}"),
    }
}

static TID: AtomicU64 = AtomicU64::new(0);

/// What was recorded of a workload.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Launches after the call that was left.
    launches: usize,
    /// Calls that the runtime made for them, taken for calls of their own.
    in_driver: usize,
    lost: i64,
}

fn recorded(workload: &str) -> Seen {
    let recording = Recording::new();
    let mut command = recording.workload(&[], workload);
    command
        .env("CUDART", cudart::stand_in())
        .env("CUDART_DRIVER", cudart::driver_stand_in());
    expect_status(&mut command, 0);
    let calls = calls(&recording);
    let named = |name: &'static str| calls.iter().filter(move |call| call.call == name);
    assert!(
        named("cudaDeviceSynchronize").all(|call| call.open && call.status.is_none()),
        "{workload}: it never returned"
    );
    Seen {
        // One gave the work that was waited for.
        launches: named("cudaLaunchKernel").filter(|call| !call.open).count() - 1,
        in_driver: named("cuLaunchKernel").count(),
        lost: lost(&recording),
    }
}

#[test]
fn a_call_left_by_unwinding_hides_no_later_one() {
    if !needs_root_and_bpf("a_call_left_by_unwinding_hides_no_later_one") {
        return;
    }
    let _lock = live_lock();
    let all = Seen {
        launches: LAUNCHES,
        in_driver: 0,
        lost: 1,
    };
    assert_eq!(recorded("unwind"), all);
    assert_eq!(recorded("unwind, then below"), all);
    assert_eq!(recorded("unwind from below"), all);
    // Here nothing shows that it was left, so a thousand calls are taken for nested, half of them by
    // the runtime. The next may be one of either kind.
    let seen = recorded("unwind, then below an old frame");
    assert!(
        (LAUNCHES - 501..=LAUNCHES).contains(&seen.launches),
        "{seen:?}"
    );
    assert!(seen.in_driver <= 1 && seen.lost == 1, "{seen:?}");
}

#[test]
fn a_call_in_which_its_thread_ends_hides_no_later_one() {
    if !needs_root_and_bpf("a_call_in_which_its_thread_ends_hides_no_later_one") {
        return;
    }
    let _lock = live_lock();
    let all = Seen {
        launches: LAUNCHES,
        in_driver: 0,
        lost: 0,
    };
    assert_eq!(recorded("end"), all);
}
