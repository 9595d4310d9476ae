// Turns errors of CUDA's runtime into exceptions that name the failed operation.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace patrac::cuda {

inline void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    cudaGetLastError();  // so that the next call does not see it again
    throw std::runtime_error(
        std::string("device=\"cuda\": ") + what + " failed: " + cudaGetErrorString(error) +
        (error == cudaErrorMemoryAllocation ? "; run fewer chains at a time, or on fewer rows" : ""));
}

}  // namespace patrac::cuda
