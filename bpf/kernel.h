/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The kernel's types, as far as the programs read them. Their layout comes from the running kernel (CO-RE). */
#ifndef INGERO_KERNEL_H
#define INGERO_KERNEL_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
};

struct task_struct {
	unsigned int __state;
	int exit_code;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct signal_struct *signal;
	char comm[16];
};

struct linux_binprm;
struct page;

#pragma clang attribute pop

#endif
