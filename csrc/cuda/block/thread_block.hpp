// A block of threads as device functions see it: CUDA's own, or one emulated by host threads.
//
// Device functions are written once, for any number of threads: each thread takes every threads-th item of a loop, and
// sync() stands between writing shared memory and reading it. Compiled by nvcc they run on the device. Compiled by the
// host's compiler they run on the threads of HostBlock, where tests compare them with the CPU engine and the thread
// sanitizer looks for races.
#pragma once

#include <cstdint>

#if !defined(__CUDACC__)
#include <algorithm>
#include <atomic>
#include <barrier>
#include <deque>
#include <thread>
#endif

#include "shared/lanes.hpp"

#if defined(__CUDACC__)
#define PATRAC_DEVICE __device__ __forceinline__
#else
#define PATRAC_DEVICE inline
#endif

namespace patrac::PATRAC_LEVEL {

// Threads that exchange values in registers.
#if defined(PATRAC_SANITIZED_WARP)  // in tests/test_races.py, whose blocks have four
inline constexpr int exchange_size = PATRAC_SANITIZED_WARP;
#else
inline constexpr int exchange_size = 32;
#endif
// Threads that work on a matrix product together; one host thread does the work of all where blocks are emulated.
inline constexpr int warp_size = 32;
// Doubles that sum_over_block() needs of shared memory, for blocks of at most 1,024 threads and up to three sums.
inline constexpr int reduction_values = 3 * 1024 / 32;

#if defined(__CUDACC__)

struct ThreadBlock {
    int thread, threads;  // threads is a multiple of warp_size

    __device__ ThreadBlock() : thread(static_cast<int>(threadIdx.x)), threads(static_cast<int>(blockDim.x)) {}

    PATRAC_DEVICE void sync() const { __syncthreads(); }

    // x of all lanes of an aligned group of `lanes` = 1, 2, 4 .. 32 threads, summed in the same order for each. All
    // threads of the warp must call it. It orders no other memory and does not wait for other warps.
    template <class T>
    PATRAC_DEVICE T sum_over_lanes(T x, int lanes) const {
        for (int distance = lanes / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
        return x;
    }
};

#else

// State that the threads of an emulated warp share: each exchanges a value and waits for the others of its warp only.
// For the thread sanitizer its atomics order nothing else, so that it does not take an exchange for a barrier.
class HostWarp {
public:
    explicit HostWarp(int threads) : threads_(threads) {}

    double exchange(double x, int lane, int other) {
        values_[lane].store(x, order);
        wait();
        const double found = values_[other].load(order);
        wait();
        return found;
    }

private:
#if defined(PATRAC_SANITIZED_WARP)  // no order for the sanitizer to see; x86 keeps enough of it
    static constexpr std::memory_order order = std::memory_order_relaxed;
#else
    static constexpr std::memory_order order = std::memory_order_seq_cst;
#endif

    void wait() {
        const int round = round_.load(order);
        if (arrived_.fetch_add(1, order) + 1 == threads_) {
            arrived_.store(0, order);
            round_.store(round + 1, order);
        } else {
            while (round_.load(order) == round) std::this_thread::yield();
        }
    }

    int threads_;
    std::atomic<int> arrived_ = 0, round_ = 0;
    std::atomic<double> values_[exchange_size] = {};
};

// State that the threads of an emulated block share.
struct HostBlock {
    explicit HostBlock(int threads) : barrier(threads) {
        for (int first = 0; first < threads; first += exchange_size)
            warps.emplace_back(std::min(threads, exchange_size));
    }
    std::barrier<> barrier;
    std::deque<HostWarp> warps;
    std::int64_t barriers = 0;  // that the block has passed
};

struct ThreadBlock {
    int thread, threads;
    HostBlock* host;

    void sync() const {
        if (thread == 0) ++host->barriers;
        if (threads > 1) host->barrier.arrive_and_wait();
    }

    // The tree of additions is the device's. `lanes` is at most the number of threads, which is a power of two.
    template <class T>
    T sum_over_lanes(T x, int lanes) const {
        HostWarp& warp = host->warps[static_cast<std::size_t>(thread / exchange_size)];
        const int lane = thread % exchange_size;
        for (int distance = lanes / 2; distance > 0; distance /= 2)
            x += static_cast<T>(warp.exchange(static_cast<double>(x), lane, lane ^ distance));
        return x;
    }
};

#endif

// x[i] of all threads, summed in the same order whoever asks; every thread gets the sums. `shared` holds
// reduction_values doubles that no thread uses any more: a barrier stands between the last call and this one. The
// threads of a block of one warp do not wait for each other.
template <int N>
PATRAC_DEVICE void sum_after_barrier(const ThreadBlock& block, double (&x)[N], double* shared) {
    static_assert(N <= 3);
    const int lanes = block.threads < exchange_size ? block.threads : exchange_size;
    for (int i = 0; i < N; ++i) x[i] = block.sum_over_lanes(x[i], lanes);
    const int warps = block.threads / lanes;
    if (warps == 1) return;
    if (block.thread % lanes == 0)
        for (int i = 0; i < N; ++i) shared[block.thread / lanes * N + i] = x[i];
    block.sync();  // the sums of the warps are there
    for (int i = 0; i < N; ++i) {
        x[i] = 0.0;
        for (int w = 0; w < warps; ++w) x[i] += shared[w * N + i];
    }
}

// The same after any call. Orders memory as sync() does, in blocks of one warp too.
template <int N>
PATRAC_DEVICE void sum_over_block(const ThreadBlock& block, double (&x)[N], double* shared) {
    block.sync();  // the sums of the last call have been read
    sum_after_barrier(block, x, shared);
}

// Four consecutive values, read and written at once from where they are aligned to all four.
template <class T>
struct alignas(4 * sizeof(T) <= 16 ? 4 * sizeof(T) : 16) Four {
    T x[4];
};
template <class T>
PATRAC_DEVICE Four<T> load_four(const T* from) {
    return *reinterpret_cast<const Four<T>*>(from);
}
template <class T>
PATRAC_DEVICE void store_four(T* to, const Four<T>& values) {
    *reinterpret_cast<Four<T>*>(to) = values;
}

}  // namespace patrac::PATRAC_LEVEL
