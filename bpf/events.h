/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the kernel programs tell the recorder: the records in the rings and the values in the maps.
 *
 * crates/capture/build.rs reads this file and makes the Rust structs from it, so it is kept plain:
 * `enum name { NAME = number, ... };`, `struct name { type field; ... };` of fixed-width types and
 * arrays of them, and an assertion of every size. No implicit padding: both compilers check.
 * All stamps are bpf_ktime_get_ns (CLOCK_MONOTONIC).
 */
#ifndef INGERO_EVENTS_H
#define INGERO_EVENTS_H

enum limits {
	COMM_BYTES = 16,           /* a task's name, with its final zero */
	COMMAND_LINE_BYTES = 1024, /* of an exec; longer ones are cut */
	BUCKET_NS = 100000000,     /* cpu_time is summed in buckets of 100 ms since the start */
	PAGE_BUCKET_NS = 10000000, /* page allocations in buckets of 10 ms */
};

/* Index into the map `lost`: what could not be delivered. */
enum lost_class {
	LOST_OFF_CPU = 0,
	LOST_PROCESS = 1,
	LOST_CPU_TIME = 2,
	LOST_CUDA = 3,
	LOST_PAGE_ALLOCS = 4,
	LOST_SWITCH_IN = 5, /* a thread got its CPU unseen */
	LOST_CLASSES = 6,
};

/* ---- settings and targets ---- */

struct config {
	__u64 start_ns; /* start of the trace; 0: not recording, every program returns at once */
	__u32 interrupts_known; /* all programs of interrupts.bpf.c are attached */
	__u32 reserved;
};
_Static_assert(sizeof(struct config) == 16, "config");

/* Value of the map `targets`: a process (tgid) whose threads are recorded. */
struct target {
	__u64 since_ns; /* when it became one; for a child its fork */
	__u32 exited;   /* its last thread has ended; the recorder removes the entry */
	__u32 reserved;
};
_Static_assert(sizeof(struct target) == 16, "target");

/* ---- scheduler ---- */

enum phase {
	PHASE_UNKNOWN = 0,   /* never seen switching */
	PHASE_RUNNING = 1,   /* on a CPU */
	PHASE_PREEMPTED = 2, /* off the CPU, still runnable */
	PHASE_BLOCKED = 3,   /* off the CPU until woken */
	PHASE_NEW = 4,       /* born, not yet on a CPU */
};

enum waker_context {
	WAKER_UNKNOWN = 0,
	WAKER_TASK = 1,
	WAKER_SOFTIRQ = 2,
	WAKER_HARDIRQ = 3,
	WAKER_IDLE = 4, /* an interrupt that came while the CPU idled */
};

/* Value of the per-CPU map `interrupts`: what runs in place of the current task, and how often it began. */
struct interrupts {
	__u32 in_hardirq;
	__u32 in_softirq;
	__u32 in_timer; /* a high-resolution timer, from which sleeping tasks are woken */
	__u32 reserved;
	__u64 hardirqs;
	__u64 softirqs;
	__u64 timers;
};
_Static_assert(sizeof(struct interrupts) == 40, "interrupts");

/* Value of the map `threads`, keyed by tid. Stamps are compared, never cleared. */
struct thread_state {
	__u64 off_ns;  /* switched out; for PHASE_NEW born, for PHASE_UNKNOWN when its process became a target */
	__u64 on_ns;   /* switched in */
	__u64 wake_ns; /* last sched_waking */
	__u64 enq_ns;  /* last sched_wakeup or sched_wakeup_new */
	__u64 ran_ns;  /* time on the CPU before off_ns */
	__s32 pid;
	__s32 waker_pid;
	__s32 waker_tid;
	__s32 taker_tid;     /* who took the CPU at off_ns */
	__u32 prev_state;    /* state bits at off_ns */
	__s32 cpu;           /* the CPU of the last switch; -1 before any */
	__u32 phase;         /* enum phase */
	__u32 waker_context; /* enum waker_context, at wake_ns */
};
_Static_assert(sizeof(struct thread_state) == 72, "thread_state");

enum off_cpu_flags {
	OFF_CPU_PREEMPTED = 1,
	OFF_CPU_CLIPPED = 2,      /* began before recording did */
	OFF_CPU_IDLE_BEFORE = 4,  /* the CPU came from idle */
	OFF_CPU_WAKER_KNOWN = 8,
	OFF_CPU_NEW = 16,         /* from birth to the first run */
	OFF_CPU_DEAD = 32,        /* the last run of a thread; no interval follows */
};

/* Ring `off_cpu_ring`: one finished interval off the CPU. */
struct off_cpu_event {
	__u64 off_ns; /* start */
	__u64 ran_ns;
	__u64 blocked_ns;
	__u64 wake_ns;
	__u64 runq_ns;
	__s32 pid;
	__s32 tid;
	__s32 waker_pid;
	__s32 waker_tid;
	__s32 taker_tid; /* -1 unknown */
	__s32 cpu;
	__u32 prev_state;
	__u16 flags; /* enum off_cpu_flags */
	__u16 waker_context;
};
_Static_assert(sizeof(struct off_cpu_event) == 72, "off_cpu_event");

/* ---- CPU time of every process of the host ---- */

struct cpu_time_key {
	__s32 pid;
	__u32 bucket; /* number of the bucket since the start */
};
_Static_assert(sizeof(struct cpu_time_key) == 8, "cpu_time_key");

struct cpu_time_value {
	__u64 run_ns;
	__u64 switches;
	char comm[16];
};
_Static_assert(sizeof(struct cpu_time_value) == 32, "cpu_time_value");

/* Value of the per-CPU map `current_run`: what runs there. */
struct current_run {
	__u64 since_ns; /* 0: no switch seen yet */
	__s32 pid;
	__s32 tid; /* 0: idle */
};
_Static_assert(sizeof(struct current_run) == 16, "current_run");

/* Ring `run_ring`: a run that crossed the border of a bucket. */
struct run_event {
	__u64 start_ns;
	__u64 end_ns;
	__s32 pid;
	__s32 cpu;
	char comm[16];
};
_Static_assert(sizeof(struct run_event) == 40, "run_event");

/* Value of the per-CPU map `idle_switches`: as many must begin as end. */
struct idle_switches {
	__u64 into_idle;
	__u64 from_idle;
};
_Static_assert(sizeof(struct idle_switches) == 16, "idle_switches");

/* ---- page allocations ---- */

/* Key of the map `page_allocs`, whose values are numbers of allocations. */
struct page_alloc_key {
	__s32 pid;
	__u32 bucket; /* number of the bucket since the start */
	__u16 page_order; /* log2 of the pages of one allocation */
	__u16 cpu;
};
_Static_assert(sizeof(struct page_alloc_key) == 12, "page_alloc_key");

/* ---- life of processes ---- */

enum process_kind {
	PROCESS_FORK = 1,
	PROCESS_THREAD = 2,
	PROCESS_EXEC = 3, /* a struct exec_event */
	PROCESS_RENAME = 4,
	PROCESS_EXIT = 5,
	PROCESS_THREAD_EXIT = 6,
};

/* Ring `process_ring`; an exec_event begins with the same fields. */
struct process_event {
	__u64 ts_ns;
	__u32 kind; /* enum process_kind */
	__s32 pid;
	__s32 tid;
	__s32 parent_pid;
	__s32 exit_code; /* as wait(2) reports it */
	char comm[16];   /* after the event */
	__u32 reserved;
};
_Static_assert(sizeof(struct process_event) == 48, "process_event");

struct exec_event {
	__u64 ts_ns;
	__u32 kind;
	__s32 pid;
	__s32 tid;
	__s32 parent_pid;
	__s32 exit_code;
	char comm[16];
	__u32 command_line_bytes; /* length of the whole command line */
	__u8 command_line[1024];  /* arguments, each ended by a zero */
};
_Static_assert(sizeof(struct exec_event) == 1072, "exec_event");

/* ---- CUDA ---- */

enum cuda_limits {
	CUDA_CALLS = 128,      /* entries of the map `cuda_layouts`, by call number */
	CUDA_SELF_TEST = 127,  /* number of the recorder's own calls: always recorded */
	CUDA_MOST_NESTED = 1000, /* calls that are believed to lie in another one */
};

/* Where a call passes a value; a number below these is that of an argument in a register. */
enum cuda_place {
	CUDA_ON_STACK = 100,         /* plus the number of the 8-byte slot after the return address */
	CUDA_IN_LAUNCH_CONFIG = 200, /* the stream, in the struct that argument 0 points to */
	CUDA_NOWHERE = 255,
};

/* Value of the map `cuda_layouts`: where a call passes what, by enum cuda_place. */
struct cuda_layout {
	__u8 bytes_place; /* of one row, where there are rows */
	__u8 rows_place;
	__u8 direction_place;
	__u8 stream_place;
};
_Static_assert(sizeof(struct cuda_layout) == 4, "cuda_layout");

/* Value of the map `cuda_open`, by tid: the outermost call that the thread is in. */
struct cuda_open_call {
	__u64 entry_ns;
	__u64 bytes;
	__u64 stream;
	__u64 frame; /* address of its return address */
	__s32 pid;
	__u32 direction;
	__u32 call;
	__u32 nested; /* calls made inside of it so far, which are not reported */
};
_Static_assert(sizeof(struct cuda_open_call) == 48, "cuda_open_call");

enum cuda_flags {
	CUDA_UNFINISHED = 1, /* the thread ended inside the call: there is no status */
};

/* Ring `cuda_ring`: a call that ended. */
struct cuda_event {
	__u64 entry_ns;
	__u64 end_ns;
	__u64 bytes;
	__u64 stream;
	__s32 pid;
	__s32 tid;
	__u32 direction; /* cudaMemcpyKind */
	__s32 status;    /* what the call returned */
	__u16 call;
	__u16 flags; /* enum cuda_flags */
	__u32 nested; /* calls made inside of it, which are not reported */
};
_Static_assert(sizeof(struct cuda_event) == 56, "cuda_event");

#endif
