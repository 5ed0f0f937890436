/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What is known about each target thread, by tid. */
#ifndef INGERO_THREADS_H
#define INGERO_THREADS_H

#include "maps.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct thread_state);
} threads SEC(".maps");

/* A thread of which nothing is known but that its process has been a target since then. */
static __always_inline struct thread_state *new_thread(__u32 tid, __s32 pid, __u64 since_ns)
{
	struct thread_state fresh = {
		.off_ns = since_ns,
		.pid = pid,
		.taker_tid = -1,
		.cpu = -1,
		.phase = PHASE_UNKNOWN,
	};

	/* Another CPU or the recorder's scan may have been faster. */
	bpf_map_update_elem(&threads, &tid, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline void rename_thread(__u32 old_tid, __u32 tid)
{
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &old_tid);

	if (!thread)
		return;
	bpf_map_update_elem(&threads, &tid, thread, BPF_ANY);
	bpf_map_delete_elem(&threads, &old_tid);
}

#endif
