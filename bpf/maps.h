/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The maps that several families of programs share. A family's own maps stand in its file. */
#ifndef INGERO_MAPS_H
#define INGERO_MAPS_H

#include "kernel.h"
#include "events.h"

/* One ring per family, so that no storm of one starves another. */
#define RING(name, bytes)                        \
	struct {                                 \
		__uint(type, BPF_MAP_TYPE_RINGBUF); \
		__uint(max_entries, bytes);      \
	} name SEC(".maps")

/* The recorder reads every 100 ms; it is woken earlier only when this much is waiting. */
#define RING_WAKE_DIVISOR 8

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

/* Processes whose threads are recorded, by tgid. Followed at fork. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct target);
} targets SEC(".maps");

/* Events lost since the start, by enum lost_class. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOST_CLASSES);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* Start of the trace, or 0 while nothing is to be recorded. */
static __always_inline __u64 trace_start(void)
{
	__u32 zero = 0;
	struct config *settings = bpf_map_lookup_elem(&config, &zero);

	return settings ? settings->start_ns : 0;
}

static __always_inline struct target *find_target(__s32 tgid)
{
	__u32 key = tgid;

	return bpf_map_lookup_elem(&targets, &key);
}

static __always_inline void count_lost(__u32 class)
{
	__u64 *count = bpf_map_lookup_elem(&lost, &class);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Flags for bpf_ringbuf_submit: waking the reader for every event is what makes tracing slow. */
static __always_inline __u64 wake_flags(void *ring, __u64 ring_bytes)
{
	__u64 waiting = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);

	return waiting > ring_bytes / RING_WAKE_DIVISOR ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

#endif
