// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Calls into CUDA libraries. The two programs serve every call: the attachment's cookie is the call's
// number, and `cuda_layouts` tells where its arguments lie.
#include <linux/ptrace.h>
#include "maps.h"
#include "cuda.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CUDA_CALLS);
	__type(key, __u32);
	__type(value, struct cuda_layout);
} cuda_layouts SEC(".maps");

#define PAGE_BYTES 4096

/* In cudaLaunchConfig_t and in CUlaunchConfig: after the sizes of grid and block and the bytes of shared memory. */
#define LAUNCH_CONFIG_STREAM_OFFSET 32

/* Arguments passed in registers, and room that makes their number a power of two. All are read, so that
 * choosing one is no access to the context, which the verifier allows only at fixed places. */
#define ARGUMENTS 8

struct arguments {
	__u64 values[ARGUMENTS];
};

static __always_inline void read_arguments(struct arguments *arguments, struct pt_regs *ctx)
{
	arguments->values[0] = PT_REGS_PARM1(ctx);
	arguments->values[1] = PT_REGS_PARM2(ctx);
	arguments->values[2] = PT_REGS_PARM3(ctx);
	arguments->values[3] = PT_REGS_PARM4(ctx);
	arguments->values[4] = PT_REGS_PARM5(ctx);
	arguments->values[5] = ctx->r9;
}

/* What the call was given in a place, by enum cuda_place; 0 for nowhere. */
static __always_inline __u64 value_at(struct pt_regs *ctx, struct arguments *arguments, __u32 place)
{
	__u64 address, value = 0;

	if (place < ARGUMENTS)
		return arguments->values[place];
	if (place == CUDA_NOWHERE)
		return 0;
	if (place == CUDA_IN_LAUNCH_CONFIG)
		address = PT_REGS_PARM1(ctx) + LAUNCH_CONFIG_STREAM_OFFSET;
	else
		address = PT_REGS_SP(ctx) + 8 * (1 + place - CUDA_ON_STACK);
	/* What cannot be read is left 0: the call itself will fail. */
	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

static __always_inline __u64 bytes_of(struct pt_regs *ctx, struct arguments *arguments, struct cuda_layout *layout)
{
	__u64 bytes = value_at(ctx, arguments, layout->bytes_place);
	__u64 rows;

	if (layout->rows_place == CUDA_NOWHERE)
		return bytes;
	rows = value_at(ctx, arguments, layout->rows_place);
	/* No device takes a pitch of 2 GiB. The product of what the call will refuse could wrap. */
	return (bytes | rows) >> 32 ? ~0ULL : bytes * rows;
}

/*
 * Whether a call whose return address lies at `frame` is made inside of `outer`, which the same thread was
 * seen to begin. The return of `outer` may never be seen: a thread can leave it by unwinding.
 *
 * The stack grows down, so a call above `outer` began after that was left. As long as the thread is in
 * `outer`, its return address is replaced by that of the kernel's trap, which is the start of a page. A jump
 * from `outer` to another function leaves the frame as it is; a new call writes its own return address there.
 * An old frame may lie untouched in a hole of the stack: so many calls and no more are taken for nested.
 */
static __always_inline bool is_inside(struct cuda_open_call *outer, __u64 frame)
{
	__u64 return_address = 0;

	if (frame > outer->frame || outer->nested >= CUDA_MOST_NESTED)
		return false;
	bpf_probe_read_user(&return_address, sizeof(return_address), (void *)outer->frame);
	return return_address && return_address % PAGE_BYTES == 0;
}

/* Whether the current process is recorded; the recorder's own test of its probes always is. */
static __always_inline bool is_recorded(__u32 tgid, __u32 call)
{
	bool recorded = trace_start() != 0;
	bool target = find_target(tgid) != NULL;

	return (recorded && target) || call == CUDA_SELF_TEST;
}

SEC("uprobe/cuda_entry")
int cuda_entry(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = pid_tgid;
	struct cuda_open_call open = {
		.pid = pid_tgid >> 32,
		.frame = PT_REGS_SP(ctx),
		.call = bpf_get_attach_cookie(ctx),
	};
	struct arguments arguments = {};
	struct cuda_open_call *outer;
	struct cuda_layout *layout;

	if (!is_recorded(open.pid, open.call))
		return 0;
	outer = bpf_map_lookup_elem(&cuda_open, &tid);
	if (outer) {
		if (is_inside(outer, open.frame)) {
			outer->nested++;
			return 0;
		}
		/* It ended, but nobody knows when. */
		count_lost(LOST_CUDA);
	}
	layout = bpf_map_lookup_elem(&cuda_layouts, &open.call);
	if (!layout)
		return 0;
	read_arguments(&arguments, ctx);
	open.bytes = bytes_of(ctx, &arguments, layout);
	open.direction = value_at(ctx, &arguments, layout->direction_place);
	open.stream = value_at(ctx, &arguments, layout->stream_place);
	/* Last, so that the work of this program is not taken for the call's. */
	open.entry_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&cuda_open, &tid, &open, BPF_ANY))
		count_lost(LOST_CUDA);
	return 0;
}

/* Only the return of the outermost call is reported: others return to a frame below. */
SEC("uretprobe/cuda_return")
int cuda_return(struct pt_regs *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct cuda_open_call *open = bpf_map_lookup_elem(&cuda_open, &tid);

	/* The return address has been taken off the stack. */
	if (open && open->frame == PT_REGS_SP(ctx) - 8)
		end_cuda_call(tid, open, PT_REGS_RC(ctx), 0);
	return 0;
}
