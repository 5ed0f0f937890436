// SPDX-License-Identifier: GPL-2.0-only OR MIT
// All kernel programs in one object, so that their maps are shared. scripts/build-bpf compiles it.
#include "maps.h"
#include "interrupts.bpf.c"
#include "process.bpf.c"
#include "sched.bpf.c"
#include "pages.bpf.c"
#include "cuda.bpf.c"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
