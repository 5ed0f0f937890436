// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Intervals off the CPU of target threads, and the CPU time of every process of the host.
#include "maps.h"
#include "interrupts.h"
#include "threads.h"

#define OFF_CPU_RING_BYTES (16 << 20)
RING(off_cpu_ring, OFF_CPU_RING_BYTES);
#define RUN_RING_BYTES (1 << 20)
RING(run_ring, RUN_RING_BYTES);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct cpu_time_key);
	__type(value, struct cpu_time_value);
} cpu_time SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct current_run);
} current_run SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct idle_switches);
} idle_switches SEC(".maps");

/* State bits of the kernel; the same in all kernels since 4.14. */
#define TASK_DEAD 0x80

/* ---- CPU time ---- */

static __always_inline void add_run(struct task_struct *task, __u32 bucket, __u64 run_ns)
{
	struct cpu_time_key key = { .pid = task->tgid, .bucket = bucket };
	struct cpu_time_value *sum = bpf_map_lookup_elem(&cpu_time, &key);

	if (!sum) {
		struct cpu_time_value fresh = {};

		bpf_probe_read_kernel(fresh.comm, sizeof(fresh.comm), task->comm);
		/* Another CPU may have been faster. */
		bpf_map_update_elem(&cpu_time, &key, &fresh, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&cpu_time, &key);
		if (!sum) {
			count_lost(LOST_CPU_TIME);
			return;
		}
	}
	__sync_fetch_and_add(&sum->run_ns, run_ns);
	__sync_fetch_and_add(&sum->switches, 1);
}

static __always_inline void report_long_run(struct task_struct *task, __u64 start_ns, __u64 end_ns, __s32 cpu)
{
	struct run_event *event = bpf_ringbuf_reserve(&run_ring, sizeof(*event), 0);

	if (!event) {
		count_lost(LOST_CPU_TIME);
		return;
	}
	event->start_ns = start_ns;
	event->end_ns = end_ns;
	event->pid = task->tgid;
	event->cpu = cpu;
	bpf_probe_read_kernel(event->comm, sizeof(event->comm), task->comm);
	bpf_ringbuf_submit(event, wake_flags(&run_ring, RUN_RING_BYTES));
}

/* Returns when this CPU was last seen switching. The idle task is nobody: it is never counted. */
static __always_inline __u64 account_run(__u64 start, __u64 now, __s32 cpu, struct task_struct *prev,
					 struct task_struct *next)
{
	__u32 zero = 0;
	struct current_run *run = bpf_map_lookup_elem(&current_run, &zero);
	struct idle_switches *idle = bpf_map_lookup_elem(&idle_switches, &zero);
	__u64 since;

	if (!run || !idle || now < start)
		return start;
	since = run->since_ns < start ? start : run->since_ns;
	if (prev->pid == 0) {
		idle->from_idle++;
	} else {
		__u64 bucket = (now - start) / BUCKET_NS;

		if ((since - start) / BUCKET_NS == bucket)
			add_run(prev, bucket, now - since);
		else
			report_long_run(prev, since, now, cpu);
	}
	if (next->pid == 0)
		idle->into_idle++;
	run->since_ns = now;
	run->pid = next->tgid;
	run->tid = next->pid;
	return since;
}

/* ---- intervals off the CPU ---- */

struct split {
	__u64 blocked_ns;
	__u64 wake_ns;
	__u64 runq_ns;
};

static __always_inline void report_interval(struct thread_state *thread, __s32 tid, struct split *split,
					    __u32 flags)
{
	struct off_cpu_event *event = bpf_ringbuf_reserve(&off_cpu_ring, sizeof(*event), 0);

	if (!event) {
		count_lost(LOST_OFF_CPU);
		return;
	}
	event->off_ns = thread->off_ns;
	event->ran_ns = thread->ran_ns;
	event->blocked_ns = split->blocked_ns;
	event->wake_ns = split->wake_ns;
	event->runq_ns = split->runq_ns;
	event->pid = thread->pid;
	event->tid = tid;
	event->waker_pid = thread->waker_pid;
	event->waker_tid = thread->waker_tid;
	event->taker_tid = thread->taker_tid;
	event->cpu = thread->cpu;
	event->prev_state = thread->prev_state;
	event->flags = flags;
	event->waker_context = thread->waker_context;
	bpf_ringbuf_submit(event, wake_flags(&off_cpu_ring, OFF_CPU_RING_BYTES));
}

static __always_inline void start_run(struct thread_state *thread, __u64 now, __s32 cpu)
{
	thread->on_ns = now;
	thread->cpu = cpu;
	thread->phase = PHASE_RUNNING;
}

static __always_inline __u64 at_most(__u64 value, __u64 limit)
{
	return value < limit ? value : limit;
}

/* Reports what the thread has waited for until `now`, when it runs. Where that is in the past, stamps may be
 * later: a thread that runs can be woken, too. */
static __always_inline void end_interval(struct thread_state *thread, __s32 tid, __u64 now, __s32 cpu,
					 bool idle_before)
{
	struct split split = {};
	__u32 flags = idle_before ? OFF_CPU_IDLE_BEFORE : 0;
	__u64 off = thread->off_ns, woken = 0, queued;

	switch (thread->phase) {
	case PHASE_PREEMPTED:
		flags |= OFF_CPU_PREEMPTED;
		split.runq_ns = now - off;
		break;
	case PHASE_NEW:
		flags |= OFF_CPU_NEW | OFF_CPU_WAKER_KNOWN;
		split.runq_ns = now - off;
		break;
	default:
		if (thread->phase == PHASE_UNKNOWN)
			flags |= OFF_CPU_CLIPPED;
		if (thread->wake_ns >= off)
			woken = thread->wake_ns;
		else if (thread->phase == PHASE_BLOCKED && thread->wake_ns > thread->on_ns)
			woken = off; /* the wake-up raced with the switch-out */
		if (!woken) {
			split.blocked_ns = now - off;
			break;
		}
		flags |= OFF_CPU_WAKER_KNOWN;
		woken = at_most(woken, now);
		queued = thread->enq_ns < woken ? woken : at_most(thread->enq_ns, now);
		split.blocked_ns = woken - off;
		split.wake_ns = queued - woken;
		split.runq_ns = now - queued;
	}
	thread->cpu = cpu;
	report_interval(thread, tid, &split, flags);
	start_run(thread, now, cpu);
}

/* Whether a thread is known to wait; of one that was never seen switching it is not known. */
static __always_inline bool is_off_cpu(struct thread_state *thread)
{
	return thread->phase != PHASE_RUNNING && thread->phase != PHASE_UNKNOWN;
}

/* When a run that was not seen to begin can have begun: after the last switch that was seen on its CPU, and
 * when the thread was ready. */
static __always_inline __u64 earliest_run(struct thread_state *thread, __u64 cpu_since, __u64 now)
{
	__u64 earliest = thread->off_ns < cpu_since ? cpu_since : thread->off_ns;

	if (thread->phase == PHASE_BLOCKED && earliest < thread->wake_ns)
		earliest = thread->wake_ns;
	if (thread->phase == PHASE_BLOCKED && earliest < thread->enq_ns)
		earliest = thread->enq_ns;
	return at_most(earliest, now);
}

/* `cpu_since`: the last switch that was seen on this CPU before. */
static __always_inline void switch_out(__u64 now, __u64 cpu_since, __s32 cpu, bool preempt, __u32 prev_state,
				       struct task_struct *prev, __s32 taker_tid, struct target *target)
{
	__u32 tid = prev->pid;
	bool dead = !preempt && prev_state & TASK_DEAD;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct split none = {};

	if (!thread) {
		/* On a CPU since its process became a target. */
		thread = new_thread(tid, prev->tgid, target->since_ns);
		if (!thread) {
			count_lost(LOST_OFF_CPU);
			return;
		}
	}
	if (is_off_cpu(thread)) {
		/* Some kernels do not report every switch. */
		count_lost(LOST_SWITCH_IN);
		end_interval(thread, tid, earliest_run(thread, cpu_since, now), cpu, false);
	}
	thread->ran_ns = now - (thread->phase == PHASE_RUNNING ? thread->on_ns : thread->off_ns);
	thread->off_ns = now;
	thread->cpu = cpu;
	thread->taker_tid = taker_tid;
	thread->prev_state = prev_state;
	/* `preempt` first: a task that is preempted after it set its state carries a sleeping state. */
	thread->phase = preempt || prev_state == 0 ? PHASE_PREEMPTED : PHASE_BLOCKED;
	if (dead) {
		report_interval(thread, tid, &none, OFF_CPU_DEAD);
		/* Here and not at exit: this switch would create the entry again. */
		bpf_map_delete_elem(&threads, &tid);
	}
}

static __always_inline void switch_in(__u64 now, __s32 cpu, struct task_struct *next, bool idle_before,
				      struct target *target)
{
	__u32 tid = next->pid;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);

	if (!thread) {
		thread = new_thread(tid, next->tgid, target->since_ns);
		if (!thread) {
			count_lost(LOST_OFF_CPU);
			return;
		}
	}
	if (thread->phase == PHASE_RUNNING) {
		/* Its switch-out was missed: the time since cannot be told apart. */
		count_lost(LOST_OFF_CPU);
		start_run(thread, now, cpu);
		return;
	}
	end_interval(thread, tid, now, cpu, idle_before);
}

static __always_inline int on_switch(bool preempt, struct task_struct *prev, struct task_struct *next,
				     __u32 prev_state)
{
	__u64 start = trace_start(), now, cpu_since;
	struct target *target;
	__s32 cpu;

	if (!start)
		return 0;
	now = bpf_ktime_get_ns();
	cpu = bpf_get_smp_processor_id();
	cpu_since = account_run(start, now, cpu, prev, next);
	if (prev->pid && (target = find_target(prev->tgid)))
		switch_out(now, cpu_since, cpu, preempt, prev_state, prev, next->pid, target);
	if (next->pid && (target = find_target(next->tgid)))
		switch_in(now, cpu, next, prev->pid == 0, target);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, __u32 prev_state)
{
	return on_switch(preempt, prev, next, prev_state);
}

/* Before 5.18 the tracepoint does not tell the state; read late, it may already be that of a wake-up. */
SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch_before_5_18, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(preempt, prev, next, prev->__state);
}

static __always_inline void remember_waker(struct thread_state *thread)
{
	__u64 waker = bpf_get_current_pid_tgid();

	thread->waker_pid = waker >> 32;
	thread->waker_tid = (__u32)waker;
	thread->waker_context = current_context((__u32)waker);
}

/* The state of a target thread, or NULL for the threads of others. */
static __always_inline struct thread_state *target_thread(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct target *target;
	struct thread_state *thread;

	if (!trace_start())
		return NULL;
	target = find_target(task->tgid);
	if (!target)
		return NULL;
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread) {
		thread = new_thread(tid, task->tgid, target->since_ns);
		if (!thread)
			count_lost(LOST_OFF_CPU);
	}
	return thread;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct thread_state *thread = target_thread(task);

	if (!thread)
		return 0;
	remember_waker(thread);
	thread->wake_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *task)
{
	struct thread_state *thread = target_thread(task);

	if (thread)
		thread->enq_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *task)
{
	struct thread_state *thread = target_thread(task);

	if (!thread)
		return 0;
	/* Whatever is known under this number was another thread. */
	remember_waker(thread);
	thread->pid = task->tgid;
	thread->off_ns = bpf_ktime_get_ns();
	thread->wake_ns = thread->off_ns;
	thread->enq_ns = thread->off_ns;
	thread->on_ns = 0;
	thread->ran_ns = 0;
	thread->taker_tid = -1;
	thread->prev_state = 0;
	thread->cpu = -1;
	thread->phase = PHASE_NEW;
	return 0;
}
