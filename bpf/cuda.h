/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* CUDA calls in flight and how their end is reported. */
#ifndef INGERO_CUDA_H
#define INGERO_CUDA_H

#include "maps.h"

#define CUDA_RING_BYTES (8 << 20)
RING(cuda_ring, CUDA_RING_BYTES);

/* Calls that threads are in, by tid. The runtime calls the driver and itself: of such calls only the
 * outermost is here and reported, so that no time and no launch counts twice. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct cuda_open_call);
} cuda_open SEC(".maps");

/* Reports the end of a thread's call and forgets it. */
static __always_inline void end_cuda_call(__u32 tid, struct cuda_open_call *open, __s32 status, __u16 flags)
{
	__u64 now = bpf_ktime_get_ns();
	struct cuda_event *event = bpf_ringbuf_reserve(&cuda_ring, sizeof(*event), 0);

	if (event) {
		event->entry_ns = open->entry_ns;
		event->end_ns = now;
		event->bytes = open->bytes;
		event->stream = open->stream;
		event->pid = open->pid;
		event->tid = tid;
		event->direction = open->direction;
		event->status = status;
		event->call = open->call;
		event->flags = flags;
		event->nested = open->nested;
		bpf_ringbuf_submit(event, wake_flags(&cuda_ring, CUDA_RING_BYTES));
	} else {
		count_lost(LOST_CUDA);
	}
	bpf_map_delete_elem(&cuda_open, &tid);
}

/* A thread that ends inside a call never returns from it. */
static __always_inline void end_cuda_call_of_thread(__u32 tid)
{
	struct cuda_open_call *open = bpf_map_lookup_elem(&cuda_open, &tid);

	if (open)
		end_cuda_call(tid, open, 0, CUDA_UNFINISHED);
}

#endif
