// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Memory pages that target processes allocate, summed here: there can be a million allocations a second.
#include "maps.h"
#include "interrupts.h"

/*
 * The CPU is part of the key, so that CPUs do not wait for each other's counts, and memory does not grow with
 * the number of CPUs as it does in a per-CPU map. The recorder removes a bucket only after it has closed and
 * no program that began in it runs any more.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct page_alloc_key);
	__type(value, __u64); /* allocations */
} page_allocs SEC(".maps");

/* What an interrupt allocates is not the doing of the task that it interrupts. */
static __always_inline bool is_interrupt(__u32 context)
{
	return context == WAKER_SOFTIRQ || context == WAKER_HARDIRQ;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(mm_page_alloc, struct page *page, unsigned int order)
{
	__u64 start = trace_start(), now, fresh = 0, *count, allocated;
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct page_alloc_key key = { .pid = pid_tgid >> 32, .page_order = order };

	if (!start || !find_target(key.pid) || is_interrupt(current_context((__u32)pid_tgid)))
		return 0;
	/* An allocation that failed has no page. Some kernels promise the verifier that there always is one, and
	 * it removes a plain comparison. */
	if (bpf_probe_read_kernel(&allocated, sizeof(allocated), ctx) || !allocated)
		return 0;
	now = bpf_ktime_get_ns();
	key.bucket = now > start ? (now - start) / PAGE_BUCKET_NS : 0;
	key.cpu = bpf_get_smp_processor_id();
	count = bpf_map_lookup_elem(&page_allocs, &key);
	if (!count) {
		/* Another task of the process on this CPU may have been faster. */
		bpf_map_update_elem(&page_allocs, &key, &fresh, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&page_allocs, &key);
		if (!count) {
			count_lost(LOST_PAGE_ALLOCS);
			return 0;
		}
	}
	__sync_fetch_and_add(count, 1);
	return 0;
}
