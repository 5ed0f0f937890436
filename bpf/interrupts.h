/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What interrupts the current task of each CPU. */
#ifndef INGERO_INTERRUPTS_H
#define INGERO_INTERRUPTS_H

#include "maps.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct interrupts);
} interrupts SEC(".maps");

static __always_inline struct interrupts *this_cpu_interrupts(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&interrupts, &zero);
}

/* Whether it is the current task that does what happens now, or something that interrupted it. */
static __always_inline __u32 current_context(__u32 current_tid)
{
	__u32 zero = 0;
	struct config *settings = bpf_map_lookup_elem(&config, &zero);
	struct interrupts *now = this_cpu_interrupts();

	if (!current_tid)
		return WAKER_IDLE;
	if (!settings || !settings->interrupts_known || !now)
		return WAKER_UNKNOWN;
	if (now->in_hardirq || (now->in_timer && !now->in_softirq))
		return WAKER_HARDIRQ;
	return now->in_softirq ? WAKER_SOFTIRQ : WAKER_TASK;
}

#endif
