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

/* Of cudaLaunchConfig_t: after two dim3 and the bytes of shared memory. */
#define LAUNCH_CONFIG_STREAM_OFFSET 32

/* Arguments passed in registers. All are read, so that choosing one is no access to the context, which the
 * verifier allows only at fixed places. */
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
}

/* An argument, or 0 for a call that has none. */
static __always_inline __u64 argument(struct arguments *arguments, __u32 number)
{
	return number < ARGUMENTS ? arguments->values[number & (ARGUMENTS - 1)] : 0;
}

static __always_inline __u64 stream_argument(struct pt_regs *ctx, struct arguments *arguments, __u32 place)
{
	__u64 address, stream = 0;

	if (place < CUDA_STREAM_STACK)
		return argument(arguments, place);
	if (place == CUDA_NO_ARGUMENT)
		return 0;
	if (place == CUDA_STREAM_LAUNCH_CONFIG)
		address = PT_REGS_PARM1(ctx) + LAUNCH_CONFIG_STREAM_OFFSET;
	else
		address = PT_REGS_SP(ctx) + 8 * (1 + place - CUDA_STREAM_STACK);
	/* What cannot be read is left 0: the call itself will fail. */
	bpf_probe_read_user(&stream, sizeof(stream), (void *)address);
	return stream;
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
	__u32 call = bpf_get_attach_cookie(ctx);
	struct cuda_call_key key = { .tid = (__u32)pid_tgid, .call = call };
	struct cuda_open_call open = { .pid = pid_tgid >> 32 };
	struct arguments arguments = {};
	struct cuda_layout *layout;

	if (!is_recorded(open.pid, call))
		return 0;
	layout = bpf_map_lookup_elem(&cuda_layouts, &call);
	if (!layout)
		return 0;
	read_arguments(&arguments, ctx);
	open.bytes = argument(&arguments, layout->bytes_argument);
	open.direction = argument(&arguments, layout->direction_argument);
	open.stream = stream_argument(ctx, &arguments, layout->stream_place);
	/* Last, so that the work of this program is not taken for the call's. */
	open.entry_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&cuda_open, &key, &open, BPF_ANY))
		count_lost(LOST_CUDA);
	return 0;
}

SEC("uretprobe/cuda_return")
int cuda_return(struct pt_regs *ctx)
{
	struct cuda_call_key key = {
		.tid = (__u32)bpf_get_current_pid_tgid(),
		.call = bpf_get_attach_cookie(ctx),
	};

	end_cuda_call(&key, PT_REGS_RC(ctx), 0);
	return 0;
}
