// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Notes what interrupts the current task, so that a task that is only interrupted is not taken for a waker.
// Flags and not depths: neither kind nests on a CPU, and a missed program cannot shift them for good.
#include "interrupts.h"

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry)
{
	struct interrupts *now = this_cpu_interrupts();

	if (now) {
		now->in_hardirq = 1;
		now->hardirqs++;
	}
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit)
{
	struct interrupts *now = this_cpu_interrupts();

	if (now)
		now->in_hardirq = 0;
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry)
{
	struct interrupts *now = this_cpu_interrupts();

	if (now) {
		now->in_softirq = 1;
		now->softirqs++;
	}
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit)
{
	struct interrupts *now = this_cpu_interrupts();

	if (now)
		now->in_softirq = 0;
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(hrtimer_expire_entry)
{
	struct interrupts *now = this_cpu_interrupts();

	if (now) {
		now->in_timer = 1;
		now->timers++;
	}
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(hrtimer_expire_exit)
{
	struct interrupts *now = this_cpu_interrupts();

	if (now)
		now->in_timer = 0;
	return 0;
}
