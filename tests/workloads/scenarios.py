#!/usr/bin/env python3
"""Small training jobs with one known bottleneck each, for the diagnosis to find.

    scenarios.py G1 --cudart PATH [--scale 0.6] [--worker-name python] [--seconds 9]
    scenarios.py G9 --outside [--seconds 9]         what burdens the job of G9, for --seconds + 6

A job runs for about `--seconds`. `--scale` makes all its work and all its kernels longer or shorter, and
so keeps the bottleneck. Where a job fills the CPUs, it is made for as many as there are. G6 reads a file
(`--file`), which `--prepare` makes. G5 makes a cgroup with a quota for itself and needs root.
"""

import argparse
import contextlib
import ctypes
import os
import random
import sys
import time

CPUS = len(os.sched_getaffinity(0))
MIB = 1 << 20
FILE_BYTES = 600 * MIB
READ_BYTES = 64 << 10


class Job:
    """What a scenario is made of: CPU work and GPU steps of scaled length, until the time is over."""

    def __init__(self, arguments):
        # Loads the CUDA library that $CUDART names, so only now.
        import ingero_workload

        self.cuda = ingero_workload
        self.scale = arguments.scale
        self.worker_name = arguments.worker_name
        self.file = arguments.file
        self.end = time.monotonic() + arguments.seconds

    def running(self):
        return time.monotonic() < self.end

    def work(self, ms):
        """About `ms` milliseconds of CPU time: an amount of work, not a time."""
        self.cuda.work(ms * self.scale)

    def step(self, kernels, us, wait=True, batch=None):
        """Copies the batch to the GPU if there is one, launches kernels of `us` microseconds, and reads
        a value of the result back if it waits."""
        nbytes = len(batch) if batch else 0
        self.cuda.step(kernels, us * self.scale, item=wait, nbytes=nbytes, address=batch)

    def loader(self, fetch, workers):
        """Batches made by forked worker processes, until the time is over."""
        # More batches than any machine gets through.
        loader = self.cuda.Loader(fetch, 10**9, workers, worker_name=self.worker_name)
        for batch in loader:
            yield batch
            if not self.running():
                return


def g1(job):
    """Four times as many loader workers as CPUs, and all of them compute: too many."""

    def fetch(_):
        job.work(30)
        return b"0"

    for _ in job.loader(fetch, workers=4 * CPUS):
        job.step(8, 500)


def g2(job):
    """One loader worker computes all the time and cannot keep up, while a CPU is idle."""

    def fetch(_):
        job.work(30)
        return b"0"

    for _ in job.loader(fetch, workers=1):
        job.step(4, 500)


def g3(job):
    """The data is in memory; handing tiny batches from process to process is what takes the time."""
    blobs = [os.urandom(4096) for _ in range(16)]
    for _ in job.loader(lambda _: blobs, workers=2):
        job.step(2, 40)


def g4(job):
    """New workers for every six batches, forked from a process with many objects."""
    ballast = [[number] for number in range(400_000)]

    def fetch(_):
        job.work(1)
        return b"0"

    while job.running():
        for _ in job.cuda.Loader(fetch, 6, workers=2, worker_name=job.worker_name):
            job.step(8, 500)
    del ballast


@contextlib.contextmanager
def cpu_quota(cpus):
    """Puts this process into a cgroup that may use so many CPUs, of either version."""
    period_us = 100_000
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        parent, limits = "/sys/fs/cgroup", {"cpu.max": f"{int(cpus * period_us)} {period_us}"}
    else:
        parent = "/sys/fs/cgroup/cpu"
        limits = {"cpu.cfs_period_us": str(period_us), "cpu.cfs_quota_us": str(int(cpus * period_us))}
    folder = f"{parent}/ingero-scenario-{os.getpid()}"
    os.mkdir(folder)
    try:
        for file, value in limits.items():
            with open(f"{folder}/{file}", "w") as limit:
                limit.write(value)
        with open(f"{folder}/cgroup.procs", "w") as members:
            members.write(str(os.getpid()))
        yield
    finally:
        with open(f"{folder}/cgroup.procs") as members:
            for pid in members.read().split():
                with contextlib.suppress(OSError), open(f"{parent}/cgroup.procs", "w") as others:
                    others.write(pid)
        os.rmdir(folder)


def g5(job):
    """Two workers compute under a quota of half a CPU."""

    def fetch(_):
        job.work(20)
        return b"0"

    with cpu_quota(0.5):
        for _ in job.loader(fetch, workers=2):
            job.step(4, 500)


def g6(job):
    """The main thread reads small pieces of a large file, at random and from the disk."""
    blocks = list(range(FILE_BYTES // READ_BYTES))
    file = os.open(job.file, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    unread = []
    while job.running():
        # Longer work is more reads here: the scale is the number of reads for each step.
        for _ in range(round(24 * job.scale)):
            if not unread:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                unread = random.sample(blocks, len(blocks))
            os.pread(file, READ_BYTES, unread.pop() * READ_BYTES)
        job.step(4, 500)
    os.close(file)


def g7(job):
    """Reads a value back after every small kernel, and then computes before the next one."""
    while job.running():
        for _ in range(10):
            job.step(1, 300)
            job.work(0.3)


def g8(job):
    """A stream of kernels that are as short as it takes to launch them."""
    while job.running():
        for _ in range(50):
            # The length of a launch cannot be scaled, so the kernels are not either.
            for _ in range(600):
                job.cuda.launch(4)
        job.cuda.sync()


def g9(job):
    """Others fill the CPUs that the main thread needs."""
    while job.running():
        job.work(6)
        job.step(8, 500)


def burn_outside(seconds):
    """Twice as many busy processes as CPUs, called logrotate."""
    end = time.monotonic() + seconds
    for _ in range(2 * CPUS):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"logrotate", 0, 0, 0)
            while time.monotonic() < end:
                pass
            os._exit(0)
    for _ in range(2 * CPUS):
        os.wait()


def g10(job):
    """Busy loader workers that keep up: the GPU is the limit."""

    def fetch(_):
        job.work(24)
        return b"0"

    for _ in job.loader(fetch, workers=2):
        job.step(30, 1400)


def g11(job):
    """Never waits for the GPU explicitly; the launches wait, because the queue is full."""
    while job.running():
        job.step(60, 700, wait=False)


def g12(job):
    """Has a CUDA context and does nothing."""
    job.cuda.malloc(MIB)
    time.sleep(max(0.0, job.end - time.monotonic()))


def mask(job):
    """Three workers compute on the one CPU that they have inherited from the main process."""

    def fetch(_):
        job.work(20)
        return b"0"

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    for _ in job.loader(fetch, workers=3):
        job.step(4, 500)


def r1(job):
    """Allocates and frees device memory in every step."""
    while job.running():
        buffers = [job.cuda.malloc(32 * MIB) for _ in range(12)]
        job.step(8, 500)
        for buffer in buffers:
            job.cuda.free(buffer)


def r2(job):
    """Copies large batches from memory that is not pinned."""
    batch = bytes(int(64 * MIB * job.scale))
    while job.running():
        job.step(20, 500, batch=batch)


def r3(job):
    """The same from pinned memory, with more kernels: the GPU is the limit."""
    nbytes = int(64 * MIB * job.scale)
    batch = job.cuda.hostalloc(nbytes)
    while job.running():
        job.cuda.step(40, 500 * job.scale, nbytes=nbytes, address=batch)


def r4(job):
    """The main thread computes between its steps; nothing shows that it loads data."""
    while job.running():
        job.work(25)
        job.step(6, 500)


def r5(job):
    """A loader without workers: the main thread prepares every batch and copies it to the GPU."""
    batch = bytes(MIB)
    while job.running():
        job.work(15)
        job.step(10, 500, batch=batch)


SCENARIOS = {
    f.__name__.upper(): f
    for f in (g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, mask, r1, r2, r3, r4, r5)
}


def prepare(path):
    """Makes the file that G6 reads. It is on the disk afterwards, so that it can leave the cache."""
    with open(path, "wb") as file:
        for _ in range(FILE_BYTES // MIB):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n".join(f"{name:5}{scenario.__doc__}" for name, scenario in SCENARIOS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--cudart", help="the CUDA runtime library (default: $CUDART)")
    parser.add_argument("--scale", type=float, default=1.0, help="of all durations (default 1)")
    parser.add_argument("--seconds", type=float, default=9.0, help="how long (default 9)")
    parser.add_argument("--worker-name", default="pt_data_worker", help="(default pt_data_worker)")
    parser.add_argument("--file", help="G6 only: the file to read, not on a tmpfs")
    parser.add_argument("--prepare", action="store_true", help="G6 only: make the file and end")
    parser.add_argument("--outside", action="store_true", help="G9 only: burden the job from outside")
    arguments = parser.parse_args()
    if (arguments.scenario == "G6") != (arguments.file is not None):
        parser.error("--file belongs to G6, which needs it")
    if arguments.prepare:
        prepare(arguments.file)
        return
    if arguments.outside:
        if arguments.scenario != "G9":
            parser.error("nothing is outside of the jobs but that of G9")
        burn_outside(arguments.seconds + 6)
        return
    if arguments.cudart:
        os.environ["CUDART"] = arguments.cudart
    elif "CUDART" not in os.environ:
        parser.error("which CUDA runtime? --cudart PATH")
    SCENARIOS[arguments.scenario](Job(arguments))


if __name__ == "__main__":
    sys.exit(main())
