/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* CUDA calls in flight and how their end is reported. */
#ifndef INGERO_CUDA_H
#define INGERO_CUDA_H

#include "maps.h"

#define CUDA_RING_BYTES (8 << 20)
RING(cuda_ring, CUDA_RING_BYTES);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cuda_call_key);
	__type(value, struct cuda_open_call);
} cuda_open SEC(".maps");

/* Reports the end of a call and forgets it. A call whose entry was not seen has none. */
static __always_inline void end_cuda_call(struct cuda_call_key *key, __s32 status, __u16 flags)
{
	__u64 now = bpf_ktime_get_ns();
	struct cuda_open_call *open = bpf_map_lookup_elem(&cuda_open, key);
	struct cuda_event *event;

	if (!open)
		return;
	event = bpf_ringbuf_reserve(&cuda_ring, sizeof(*event), 0);
	if (event) {
		event->entry_ns = open->entry_ns;
		event->end_ns = now;
		event->bytes = open->bytes;
		event->stream = open->stream;
		event->pid = open->pid;
		event->tid = key->tid;
		event->direction = open->direction;
		event->status = status;
		event->call = key->call;
		event->flags = flags;
		event->reserved = 0;
		bpf_ringbuf_submit(event, wake_flags(&cuda_ring, CUDA_RING_BYTES));
	} else {
		count_lost(LOST_CUDA);
	}
	bpf_map_delete_elem(&cuda_open, key);
}

/* A runtime call inside a collective, and the driver call inside it. */
#define CUDA_NESTING 3

static __always_inline bool find_cuda_call(struct cuda_call_key *key)
{
	for (key->call = 0; key->call < CUDA_CALLS; key->call++) {
		if (bpf_map_lookup_elem(&cuda_open, key))
			return true;
	}
	return false;
}

/* A thread that ends inside a call never returns from it. Searching and ending are apart: the verifier
 * refuses a loop over both as too complex. */
static __always_inline void end_cuda_calls(__u32 tid)
{
	struct cuda_call_key key = { .tid = tid };

	for (int depth = 0; depth < CUDA_NESTING && find_cuda_call(&key); depth++)
		end_cuda_call(&key, 0, CUDA_UNFINISHED);
}

#endif
