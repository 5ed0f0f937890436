"""What the workloads of the tests are made of: a CUDA runtime, fixed amounts of work, a small loader.

CUDART names the runtime to load; without it the dynamic loader looks for libcudart.so. Functions are
called as compiled programs call them, so that a recorder reads the same arguments. Only the stand-in
runtime can execute `launch`: its kernels run for as many microseconds as the grid is wide.
"""

import ctypes
import multiprocessing
import os
import time
import zlib

CUDART = ctypes.CDLL(os.environ.get("CUDART", "libcudart.so"))
LIBC = ctypes.CDLL(None)

HOST_TO_DEVICE = 1
DEVICE_TO_HOST = 2
# The stand-in never looks at device memory.
DEVICE = 0x0D0000000000


class Dim3(ctypes.Structure):
    """A grid or block. By value it takes two registers, so the stream of a launch lies on the stack."""

    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


_pointer = ctypes.c_void_p
_size = ctypes.c_size_t
_int = ctypes.c_int
for _name, _arguments in {
    "cudaMalloc": [_pointer, _size],
    "cudaFree": [_pointer],
    "cudaHostAlloc": [_pointer, _size, ctypes.c_uint],
    "cudaFreeHost": [_pointer],
    "cudaMemcpy": [_pointer, _pointer, _size, _int],
    "cudaMemcpyAsync": [_pointer, _pointer, _size, _int, _pointer],
    "cudaLaunchKernel": [_pointer, Dim3, Dim3, _pointer, _size, _pointer],
    "cudaStreamSynchronize": [_pointer],
    "cudaDeviceSynchronize": [],
    "cudaEventSynchronize": [_pointer],
}.items():
    getattr(CUDART, _name).argtypes = _arguments

_BLOCK = Dim3(256, 1, 1)


def name(new_name):
    """Renames the calling thread."""
    PR_SET_NAME = 15
    LIBC.prctl(PR_SET_NAME, new_name.encode()[:15], 0, 0, 0)


def malloc(nbytes):
    """Device memory."""
    address = _pointer()
    CUDART.cudaMalloc(ctypes.byref(address), nbytes)
    return address


def free(address):
    CUDART.cudaFree(address)


def hostalloc(nbytes):
    """Pinned host memory."""
    address = _pointer()
    CUDART.cudaHostAlloc(ctypes.byref(address), nbytes, 0)
    return address


def launch(us, stream=None):
    """Queues a kernel of so many microseconds."""
    return CUDART.cudaLaunchKernel(None, Dim3(int(us), 1, 1), _BLOCK, None, 0, stream)


def sync(stream=None):
    CUDART.cudaStreamSynchronize(stream)


def devsync():
    CUDART.cudaDeviceSynchronize()


def h2d(address, nbytes):
    """Copies host memory to the device; asynchronous only from pinned memory."""
    CUDART.cudaMemcpyAsync(DEVICE, address, nbytes, HOST_TO_DEVICE, None)


def d2h4():
    """Reads four bytes back and waits for them, as `.item()` does."""
    value = ctypes.c_int()
    CUDART.cudaMemcpyAsync(ctypes.byref(value), DEVICE, 4, DEVICE_TO_HOST, None)
    sync()


def burn(ms):
    """Computes for so many milliseconds of wall time."""
    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass


def work(units):
    """A fixed amount of computing: about a millisecond of CPU time for each unit, whatever the load."""
    data = b"x" * 4096
    for _ in range(int(units * 72)):
        data = zlib.compress(data * 4, 1)[:1] * 4096


def step(kernels=20, us=500, item=True, nbytes=0, address=None):
    """One training step: an optional copy to the device, kernels, and a value that is read back."""
    if nbytes:
        h2d(address, nbytes)
    for _ in range(kernels):
        launch(us)
    if item:
        d2h4()


class Loader:
    """A small DataLoader: one queue of indices for each worker, one queue of results, batches in order."""

    def __init__(self, fetch, batches, workers, prefetch=2, context="fork", worker_name="pt_data_worker"):
        processes = multiprocessing.get_context(context)
        self._batches = batches
        self._results = processes.Queue()
        self._indices = [processes.Queue() for _ in range(workers)]
        self._workers = [
            processes.Process(target=_worker, args=(fetch, indices, self._results, worker_name), daemon=True)
            for indices in self._indices
        ]
        for worker in self._workers:
            worker.start()
        self._sent = 0
        for _ in range(workers * prefetch):
            self._request()

    def _request(self):
        if self._sent < self._batches:
            self._indices[self._sent % len(self._indices)].put(self._sent)
            self._sent += 1

    def __iter__(self):
        early = {}
        for batch in range(self._batches):
            while batch not in early:
                index, data = self._results.get()
                early[index] = data
            data = early.pop(batch)
            self._request()
            yield data
        for indices in self._indices:
            indices.put(None)
        for worker in self._workers:
            worker.join()


def _worker(fetch, indices, results, worker_name):
    name(worker_name)
    while (index := indices.get()) is not None:
        results.put((index, fetch(index)))
