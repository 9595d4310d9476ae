// Launches stages (cuda/device/launch_order.hpp) as kernels on a stream.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "cuda/device/cuda_check.hpp"
#include "cuda/device/launch_order.hpp"

namespace patrac::cuda {

extern __shared__ __align__(16) double shared_memory[];

template <class Stage, class Work>
__global__ void __launch_bounds__(Stage::max_threads, Stage::min_blocks)
    run_stage(const __grid_constant__ Work work, const Stage stage) {
    const LaunchGrid at{static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)};
    stage.run(ThreadBlock(), work, at, shared_memory);
}

// What a stream recorded, for launching it again.
class CudaGraph {
public:
    CudaGraph() = default;
    CudaGraph(const CudaGraph&) = delete;
    CudaGraph& operator=(const CudaGraph&) = delete;
    ~CudaGraph() { forget(); }

    bool is_recorded() const { return graph_ != nullptr; }
    void forget() {
        if (graph_) cudaGraphExecDestroy(std::exchange(graph_, nullptr));
    }
    // What f() launches on the stream, which it does not run.
    template <class F>
    void record(cudaStream_t stream, const F& f) {
        cudaGraph_t recorded = nullptr;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording steps");
        try {
            f();
        } catch (...) {
            cudaStreamEndCapture(stream, &recorded);
            if (recorded) cudaGraphDestroy(recorded);
            cudaGetLastError();  // so that the next launch does not see it again
            throw;
        }
        check(cudaStreamEndCapture(stream, &recorded), "recording steps");
        const cudaError_t error = cudaGraphInstantiate(&graph_, recorded, 0);
        cudaGraphDestroy(recorded);
        check(error, "recording steps");
    }
    void launch(cudaStream_t stream) const { check(cudaGraphLaunch(graph_, stream), "launching steps"); }

private:
    cudaGraphExec_t graph_ = nullptr;
};

class CudaLauncher {
public:
    // `graph` is that of the stream's last launch, which may still run. It and the properties outlive the launcher.
    CudaLauncher(cudaStream_t stream, const cudaDeviceProp& properties, CudaGraph& graph)
        : stream_(stream), properties_(properties), graph_(graph) {}

    static int warps(int threads) { return threads / warp_size; }

    template <class Stage, class Work>
    void launch(const Stage& stage, const Work& work, LaunchGrid grid, int threads, std::int64_t shared_bytes) const {
        static_assert(sizeof(Work) + sizeof(Stage) <= 4096, "kernel arguments");
        constexpr std::int64_t shared_without_asking = 48 * 1024;
        const auto kernel = run_stage<Stage, Work>;
        // The limit belongs to the kernel: always the device's, since another model's launch may be on its way.
        if (shared_bytes > shared_without_asking)
            check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(properties_.sharedMemPerBlockOptin)),
                  "asking for shared memory");
        // A wish: where models that run at the same time have another, only speed is lost.
        if constexpr (Stage::sizes_cache) {
            constexpr std::int64_t promised_threads = Stage::max_threads * Stage::min_blocks;
            check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                       shared_percent(grid.x, promised_threads / threads, shared_bytes)),
                  "asking for shared memory");
        }
        const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
        kernel<<<blocks, static_cast<unsigned>(threads), static_cast<std::size_t>(shared_bytes), stream_>>>(work,
                                                                                                            stage);
        check(cudaGetLastError(), "launching a kernel");
    }

    // Recorded once and launched as one graph: a step may take less than the host needs to launch its kernels.
    template <class F>
    void repeat(std::int64_t count, const F& f) const {
        if (graph_.is_recorded()) {
            check(cudaStreamSynchronize(stream_), "a kernel");
            graph_.forget();
        }
        graph_.record(stream_, f);
        for (std::int64_t i = 0; i < count; ++i) graph_.launch(stream_);
    }

private:
    // Percent of a multiprocessor's shared memory that its blocks take, of `blocks` in all that have `bytes` each and
    // `max_resident` of which run side by side. The rest serves as L1 cache of what they read of the device's memory.
    int shared_percent(int blocks, std::int64_t max_resident, std::int64_t bytes) const {
        const std::int64_t of_multiprocessor = (blocks - 1) / properties_.multiProcessorCount + 1;
        const auto reserved = static_cast<std::int64_t>(properties_.reservedSharedMemPerBlock);
        const std::int64_t wanted = std::min(max_resident, of_multiprocessor) * (bytes + reserved);
        const auto capacity = static_cast<std::int64_t>(properties_.sharedMemPerMultiprocessor);
        return static_cast<int>(std::min<std::int64_t>(100, (100 * wanted + capacity - 1) / capacity));
    }

    cudaStream_t stream_;
    const cudaDeviceProp& properties_;
    CudaGraph& graph_;
};

}  // namespace patrac::cuda
