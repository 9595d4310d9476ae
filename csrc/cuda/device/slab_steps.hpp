// Steps of chains whose evaluations blocks share, as launches on a stream (emulated.cpp runs the same, block by block).
#pragma once

#include <cuda_runtime.h>

#include "cuda/wide/slabs.hpp"

namespace patrac::cuda {

// A batch of steps is recorded once and launched as one graph, since a step may take less than the host needs to launch
// its kernels.
class SlabSteps {
public:
    SlabSteps() = default;
    SlabSteps(const SlabSteps&) = delete;
    SlabSteps& operator=(const SlabSteps&) = delete;
    ~SlabSteps();

    template <class T>
    void launch(const SlabLaunch<T>& work, int chains, int threads, int shared_limit, cudaStream_t stream);

private:
    cudaGraphExec_t graph_ = nullptr;  // of the last launch, which may still run
};

}  // namespace patrac::cuda
