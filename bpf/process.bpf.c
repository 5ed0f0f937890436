// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Life of processes: fork, thread, exec, rename, exit. Follows the target tree at fork.
#include "maps.h"
#include "cuda.h"
#include "threads.h"

#define PROCESS_RING_BYTES (4 << 20)
RING(process_ring, PROCESS_RING_BYTES);

/* wait(2) reports the code of the whole group where one was set. */
#define SIGNAL_GROUP_EXIT 4

static __always_inline struct process_event *new_process_event(__u32 kind, struct task_struct *task)
{
	struct process_event *event = bpf_ringbuf_reserve(&process_ring, sizeof(*event), 0);

	if (!event) {
		count_lost(LOST_PROCESS);
		return NULL;
	}
	event->ts_ns = bpf_ktime_get_ns();
	event->kind = kind;
	event->pid = task->tgid;
	event->tid = task->pid;
	event->parent_pid = task->real_parent->tgid;
	event->exit_code = 0;
	event->reserved = 0;
	bpf_probe_read_kernel(event->comm, sizeof(event->comm), task->comm);
	return event;
}

static __always_inline void submit_process_event(void *event)
{
	bpf_ringbuf_submit(event, wake_flags(&process_ring, PROCESS_RING_BYTES));
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct process_event *event;
	bool thread = child->tgid == parent->tgid;
	__u32 tgid = child->tgid;

	if (!trace_start())
		return 0;
	if (!find_target(parent->tgid)) {
		/* The number of a target that ended may be in use again. */
		if (!thread && find_target(tgid))
			bpf_map_delete_elem(&targets, &tgid);
		return 0;
	}
	if (!thread) {
		struct target target = { .since_ns = bpf_ktime_get_ns() };

		if (bpf_map_update_elem(&targets, &tgid, &target, BPF_ANY))
			count_lost(LOST_PROCESS);
	}
	event = new_process_event(thread ? PROCESS_THREAD : PROCESS_FORK, child);
	if (!event)
		return 0;
	event->parent_pid = parent->tgid;
	submit_process_event(event);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task, int old_tid, struct linux_binprm *bprm)
{
	struct exec_event *event;
	__u64 arg_start, bytes;

	if (!trace_start() || !find_target(task->tgid))
		return 0;
	/* A thread that calls exec goes on as the main thread. */
	if (old_tid != task->pid)
		rename_thread(old_tid, task->pid);

	event = bpf_ringbuf_reserve(&process_ring, sizeof(*event), 0);
	if (!event) {
		count_lost(LOST_PROCESS);
		return 0;
	}
	event->ts_ns = bpf_ktime_get_ns();
	event->kind = PROCESS_EXEC;
	event->pid = task->tgid;
	event->tid = task->pid;
	event->parent_pid = task->real_parent->tgid;
	event->exit_code = 0;
	bpf_probe_read_kernel(event->comm, sizeof(event->comm), task->comm);

	arg_start = task->mm->arg_start;
	bytes = task->mm->arg_end - arg_start;
	event->command_line_bytes = bytes;
	if (bytes > sizeof(event->command_line))
		bytes = sizeof(event->command_line);
	if (bpf_probe_read_user(event->command_line, bytes, (void *)arg_start))
		event->command_line_bytes = 0;
	submit_process_event(event);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *task, const char *comm)
{
	struct process_event *event;

	if (!trace_start() || !find_target(task->tgid))
		return 0;
	event = new_process_event(PROCESS_RENAME, task);
	if (!event)
		return 0;
	/* The task still carries its old name. */
	bpf_probe_read_kernel_str(event->comm, sizeof(event->comm), comm);
	submit_process_event(event);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	struct process_event *event;
	struct target *target;

	if (!trace_start())
		return 0;
	target = find_target(task->tgid);
	if (!target)
		return 0;
	end_cuda_call_of_thread(task->pid);
	if (task->pid != task->tgid) {
		event = new_process_event(PROCESS_THREAD_EXIT, task);
		if (event) {
			event->exit_code = task->exit_code;
			submit_process_event(event);
		}
	}
	/* The process ends with its last thread. Two that end at once both see no other: the first reports. */
	if (task->signal->live.counter || __sync_val_compare_and_swap(&target->exited, 0, 1))
		return 0;
	event = new_process_event(PROCESS_EXIT, task->group_leader);
	if (!event)
		return 0;
	event->exit_code = task->signal->flags & SIGNAL_GROUP_EXIT ? task->signal->group_exit_code
								   : task->group_leader->exit_code;
	submit_process_event(event);
	return 0;
}
