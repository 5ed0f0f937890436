#!/usr/bin/env python3
"""Jobs whose bottleneck was chosen without knowledge of the rules of the diagnosis.

    blind.py B1 --cudart PATH [--seconds 9]     run a job; prints its steps and steps per second
    blind.py B1 --cudart PATH --fixed           the same job without its bottlenecks
    blind.py B5 --cudart PATH --fixed ALLOC_CHURN    without one of them
    blind.py B3 --outside [--seconds 9]         what burdens the job from outside, for --seconds + 6

Each job does what a training or inference script does: epochs, batches of varying size, several phases in
a step, a log line now and then, validation. They are meant for two CPUs and the stand-in runtime.

B1  Ranking model over features that lie in RAM. Two workers only slice them, and send each batch of about
    28 MB through a pipe; the embedding rows of the batch come from ordinary host memory as well.
    Mostly LOADER_IPC_INMEM, and about half as much H2D_PAGEABLE.
B2  Fine-tuning of a language model with accumulated gradients, batches from a thread through pinned
    memory, a loss that is read after each micro-batch, snapshots of weights. HEALTHY_GPU_BOUND.
B3  Video classification whose two workers keep ahead of the device, until someone builds software with
    eight short-lived compilers at a time on the same CPUs (--outside). EXTERNAL_CONTENTION.
B4  Text generation, token by token, with some 200 kernels of a few microseconds for each token.
    The token is read back each time, but that costs next to nothing. LAUNCH_BOUND.
B5  Detection: boxes are matched to the truth in Python between forward and backward, and tensors of
    varying size are allocated and freed on the device in each step, as without a caching allocator.
    HOST_SERIAL, and about two thirds as much ALLOC_CHURN.
B6  Short epochs of few-shot learning, each with new loader processes for training and for validation,
    which have to start an interpreter and parse the index of the data set first. WORKER_RESPAWN.
"""

import argparse
import ctypes
import itertools
import json
import multiprocessing
import os
import queue
import random
import threading
import time
import zlib

# What was built in, largest cost first.
EXPECTED = {
    "B1": ["LOADER_IPC_INMEM", "H2D_PAGEABLE"],
    "B2": ["HEALTHY_GPU_BOUND"],
    "B3": ["EXTERNAL_CONTENTION"],
    "B4": ["LAUNCH_BOUND"],
    "B5": ["HOST_SERIAL", "ALLOC_CHURN"],
    "B6": ["WORKER_RESPAWN"],
}

# What a job has as well, without a cost that matters: --fixed with such a name should gain nothing.
HARMLESS = {
    "B2": ["SYNC_EVERY_STEP", "HOST_SERIAL"],
    "B3": ["LOADER_CPU_BOUND"],
    "B4": ["SYNC_EVERY_STEP"],
    "B6": ["LOADER_CPU_BOUND"],
}

MB = 1 << 20
FOREVER = 1 << 30

# The helper library, once the runtime to load is known. Loaders that start an interpreter have none, and
# what is outside a job must not load the runtime.
lib = None


def compute(units):
    """As `work` of the helper library: about a millisecond of CPU time for each unit."""
    data = b"x" * 4096
    for _ in range(int(units * 72)):
        data = zlib.compress(data * 4, 1)[:1] * 4096


def varied(index, low, high):
    """A number that depends on `index` alone, so that each run does the same."""
    return low + (high - low) * random.Random(index * 7919 + 13).random()


class Job:
    """Counts steps until time is up, and knows which causes to leave out."""

    def __init__(self, scenario, seconds, fixed):
        if fixed == []:
            fixed = HARMLESS[scenario] if EXPECTED[scenario] == ["HEALTHY_GPU_BOUND"] else EXPECTED[scenario]
        self.fixed = set(fixed or [])
        self.steps = 0
        self.log = open(os.devnull, "w")
        self.start = time.monotonic()
        self.end = self.start + seconds

    def has(self, cause):
        return cause not in self.fixed

    def over(self):
        return time.monotonic() >= self.end

    def write(self, **values):
        """A line of the log."""
        print(json.dumps({"step": self.steps, "time": time.time(), **values}), file=self.log, flush=True)

    def summary(self):
        lib.devsync()
        elapsed = time.monotonic() - self.start
        return f"steps {self.steps} in {elapsed:.2f} s: {self.steps / elapsed:.2f} per second"


# --- B1: ranking, features in RAM ---------------------------------------------------------------------


class FeatureRows:
    """Slices of a table in memory."""

    def __init__(self, table):
        self.table = memoryview(table)

    def span(self, index):
        nbytes = int(varied(index, 20, 37)) * MB
        first = int(varied(index + 1, 0, len(self.table) - nbytes))
        return first, nbytes

    def __call__(self, index):
        first, nbytes = self.span(index)
        return bytes(self.table[first : first + nbytes])


def ranking(job):
    lib.name("ranker")
    table = bytearray(os.urandom(MB)) * 192
    base = ctypes.addressof(ctypes.c_char.from_buffer(table))
    rows = FeatureRows(table)
    embedding_bytes = 40 * MB
    if job.has("H2D_PAGEABLE"):
        embeddings, staging = bytearray(embedding_bytes), None
        embedding_address = ctypes.addressof(ctypes.c_char.from_buffer(embeddings))
    else:
        embedding_address, staging = lib.hostalloc(embedding_bytes), lib.hostalloc(40 * MB)

    if job.has("LOADER_IPC_INMEM"):
        batches = iter(lib.Loader(rows, FOREVER, workers=2))
    else:
        batches = ((base + first, nbytes) for first, nbytes in map(rows.span, itertools.count()))

    def to_device(batch):
        address, nbytes = batch if isinstance(batch, tuple) else (batch, len(batch))
        # Pinned, the batch counts as received in place.
        lib.h2d(staging or address, nbytes)
        lib.h2d(embedding_address, embedding_bytes)
        return nbytes

    def forward(nbytes):
        for _ in range(3):
            lib.launch(120 + nbytes // MB * 2)  # lookup, bottom layers, interaction
        for _ in range(9):
            lib.launch(90)

    while not job.over():
        for _ in range(60):
            forward(to_device(next(batches)))
            for _ in range(24):
                lib.launch(80)  # backward
            for _ in range(6):
                lib.launch(60)  # optimizer
            job.steps += 1
            if job.steps % 25 == 0:
                lib.d2h4()
                job.write(loss=1 / job.steps)
            if job.over():
                return
        for _ in range(3):
            forward(to_device(next(batches)))
        lib.d2h4()
        job.write(validation=0.7)


# --- B2: fine-tuning, bound by the device -------------------------------------------------------------


def finetuning(job):
    lib.name("finetune")
    slots = [lib.hostalloc(2 * MB) for _ in range(4)]
    empty, ready = queue.Queue(), queue.Queue(maxsize=2)
    for slot in slots:
        empty.put(slot)

    def collate():
        lib.name("collate")
        for index in itertools.count():
            slot = empty.get()
            tokens = int(varied(index, 1024, 2048))
            if job.has("HOST_SERIAL"):
                compute(1)
            ctypes.memset(slot, index % 256, tokens * 512)
            ready.put((slot, tokens))

    threading.Thread(target=collate, daemon=True).start()
    weights = lib.hostalloc(8 * MB)
    losses = []
    while not job.over():
        for micro in range(4):
            slot, tokens = ready.get()
            lib.h2d(slot, tokens * 512)
            for layer in range(12):
                lib.launch(tokens * 0.3)  # attention
                lib.launch(tokens * 0.45)  # feed forward
                if layer % 4 == 3:
                    lib.launch(40)
            for _ in range(12):
                lib.launch(tokens * 1.5)  # backward
            if job.has("SYNC_EVERY_STEP") or micro == 3:
                lib.d2h4()
            if job.has("HOST_SERIAL"):
                losses.append(tokens / 2048)
                job.write(tokens=tokens, loss=sum(losses[-50:]) / len(losses[-50:]))
            empty.put(slot)
            job.steps += 1
        for _ in range(10):
            lib.launch(300)  # clip, optimizer
        if job.steps % 160 == 0:
            lib.CUDART.cudaMemcpyAsync(weights, lib.DEVICE, 8 * MB, lib.DEVICE_TO_HOST, None)
            lib.sync()
            job.write(snapshot=job.steps)


# --- B3: video classification beside a parallel build -------------------------------------------------


class Clips:
    """Decodes, crops and flips; frames leave as bytes for the device to normalize."""

    def __init__(self, units):
        self.units = units

    def __call__(self, index):
        compute(self.units * varied(index, 0.7, 1.3))
        return bytes(256 * 1024)


def video(job):
    lib.name("vidcls")
    pinned = lib.hostalloc(MB)
    batches = iter(lib.Loader(Clips(22 if job.has("LOADER_CPU_BOUND") else 1), FOREVER, workers=2, prefetch=3))
    while not job.over():
        for _ in range(80):
            frames = next(batches)
            ctypes.memmove(pinned, frames, len(frames))
            lib.h2d(pinned, len(frames))
            for _ in range(20):
                lib.launch(400)
            for _ in range(22):
                lib.launch(650)
            for _ in range(8):
                lib.launch(200)
            job.steps += 1
            if job.steps % 4 == 0:
                lib.d2h4()
                job.write(top1=0.5)
            if job.over():
                return
        for _ in range(4):
            next(batches)
            for _ in range(20):
                lib.launch(400)
        lib.d2h4()
        job.write(validation=0.6)


def build(seconds):
    """Keeps eight compilers busy, each for a unit of half a second or so, until time is up."""
    end = time.monotonic() + seconds
    set_name = ctypes.CDLL(None).prctl

    def compile_unit(index):
        set_name(15, b"cc1plus", 0, 0, 0)
        until = min(end, time.monotonic() + 20)
        for _ in range(int(varied(index, 60, 250))):
            if time.monotonic() >= until:
                break
            compute(1)

    set_name(15, b"ninja", 0, 0, 0)
    processes = multiprocessing.get_context("fork")
    running = []
    for index in itertools.count():
        while len(running) >= 8 and time.monotonic() < end:
            time.sleep(0.01)
            running = [unit for unit in running if unit.is_alive()]
        if time.monotonic() >= end:
            break
        unit = processes.Process(target=compile_unit, args=(index,), daemon=True)
        unit.start()
        running.append(unit)
    for unit in running:
        unit.join(2)


# --- B4: text generation with many small kernels ------------------------------------------------------


def generation(job):
    lib.name("generate")
    prompt = lib.hostalloc(MB)
    vocabulary = [f"tok{number} " for number in range(512)]
    for request in itertools.count():
        length = int(varied(request, 60, 300))
        lib.h2d(prompt, length * 256)
        for _ in range(24 * 4):
            lib.launch(length * 0.4)  # the prompt at once
        lib.d2h4()
        text = []
        for position in range(int(varied(request + 5, 80, 240))):
            kernels = [2, 1, 2, 3 + (length + position) // 200, 1, 2, 3, 1, 2] * 24
            if job.has("LAUNCH_BOUND"):
                for us in kernels:
                    lib.launch(us)
            else:
                lib.launch(sum(kernels))  # as a captured graph
            lib.launch(12)  # logits
            lib.launch(4)  # sampling
            if job.has("SYNC_EVERY_STEP") or position % 32 == 31:
                lib.d2h4()
            text.append(vocabulary[(request + position) % 512])
            job.steps += 1
            if job.over():
                return
        lib.sync()
        job.write(request=request, text="".join(text))


# --- B5: detection with matching on the host and no caching allocator ---------------------------------


def match(boxes, truths):
    """Assigns each truth the nearest box that is still free."""
    free = dict(enumerate(boxes))
    pairs = []
    for truth, (x, y) in enumerate(truths):
        nearest = min(free, key=lambda box: abs(free[box][0] - x) + abs(free[box][1] - y))
        pairs.append((nearest, truth))
        del free[nearest]
    return pairs


class Images:
    def __call__(self, index):
        compute(4)
        return bytes(MB)


def detection(job):
    lib.name("detector")
    pinned = lib.hostalloc(MB)
    batches = iter(lib.Loader(Images(), FOREVER, workers=1, prefetch=4))
    some = random.Random(5)
    boxes = [(some.random(), some.random()) for _ in range(600)]
    pool = [lib.malloc(6 * MB) for _ in range(4)]

    def tensors(count, index):
        if job.has("ALLOC_CHURN"):
            return [lib.malloc(int(varied(index + number, 0.2, 6) * MB)) for number in range(count)]
        return pool[:count]

    def release(held):
        if job.has("ALLOC_CHURN"):
            for address in held:
                lib.free(address)

    for epoch in itertools.count():
        for number in range(100):
            index = epoch * 100 + number
            images = next(batches)
            ctypes.memmove(pinned, images, len(images))
            lib.h2d(pinned, len(images))
            held = tensors(4, index)
            for layer in range(12):
                scratch = tensors(1, index + layer)
                lib.launch(300)
                release(scratch)
            truths = [(varied(index + n, 0, 1), varied(index - n, 0, 1)) for n in range(int(varied(index, 4, 12)))]
            if job.has("HOST_SERIAL"):
                lib.d2h4()  # boxes
                for _ in range(20):  # images of the batch
                    match(boxes, truths * 2)
            else:
                lib.launch(250)  # matching on the device
            for layer in range(18):
                scratch = tensors(1, index - layer)
                lib.launch(280)
                release(scratch)
            for _ in range(4):
                lib.launch(150)
            release(held)
            job.steps += 1
            if job.steps % 20 == 0:
                lib.d2h4()
                job.write(epoch=epoch, objects=len(truths))
            if job.over():
                return


# --- B6: few-shot learning with new workers for each short epoch --------------------------------------


class Episodes:
    """Parses the index of the data set when first used, as a handle that cannot be shared is opened."""

    def __init__(self, units):
        self.units = units
        self.index = None

    def __call__(self, index):
        if self.index is None:
            compute(25)
            self.index = True
        compute(self.units * varied(index, 0.5, 1.5))
        return bytes(128 * 1024)


def fewshot(job):
    lib.name("fewshot")
    pinned = lib.hostalloc(MB)
    episodes = Episodes(3 if job.has("LOADER_CPU_BOUND") else 0)

    def loader(count):
        return iter(lib.Loader(episodes, count, workers=2, context="spawn"))

    kept = None if job.has("WORKER_RESPAWN") else (loader(FOREVER), loader(FOREVER))

    def batches(kind, count):
        return itertools.islice(kept[kind], count) if kept else loader(count)

    for epoch in itertools.count():
        for episode in batches(0, int(varied(epoch, 18, 28))):
            ctypes.memmove(pinned, episode, len(episode))
            lib.h2d(pinned, len(episode))
            for _ in range(5):  # inner loop
                for _ in range(6):
                    lib.launch(240)
            for _ in range(10):
                lib.launch(280)
            job.steps += 1
            if job.steps % 8 == 0:
                lib.d2h4()
                job.write(epoch=epoch)
            if job.over():
                return
        for episode in batches(1, 8):
            ctypes.memmove(pinned, episode, len(episode))
            lib.h2d(pinned, len(episode))
            for _ in range(12):
                lib.launch(250)
            lib.d2h4()
            if job.over():
                return
        job.write(epoch=epoch, validation=0.5)


JOBS = {"B1": ranking, "B2": finetuning, "B3": video, "B4": generation, "B5": detection, "B6": fewshot}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=sorted(JOBS))
    parser.add_argument("--cudart", help="the CUDA runtime to load")
    parser.add_argument("--seconds", type=float, default=9)
    parser.add_argument("--fixed", nargs="*", metavar="CAUSE", help="leave out these causes, or all")
    parser.add_argument("--outside", action="store_true", help="what burdens the job from outside (B3)")
    options = parser.parse_args()
    causes = EXPECTED[options.scenario] + HARMLESS.get(options.scenario, [])
    if unknown := set(options.fixed or []) - set(causes):
        parser.error(f"{options.scenario} has no {', '.join(sorted(unknown))}")
    if options.outside:
        if options.scenario == "B3" and options.fixed is None:
            build(options.seconds + 6)
        return
    if options.cudart:
        os.environ["CUDART"] = options.cudart
    global lib
    import ingero_workload as lib

    job = Job(options.scenario, options.seconds, options.fixed)
    JOBS[options.scenario](job)
    print(job.summary(), flush=True)
    for child in multiprocessing.active_children():
        child.terminate()


if __name__ == "__main__":
    main()
