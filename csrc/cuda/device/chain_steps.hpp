// Steps of chains, each of one block, on a stream.
#pragma once

#include "cuda/device/cuda_launcher.hpp"

namespace patrac::cuda {

template <class T>
void launch_chain_steps(const ChainLaunch<T>& work, int chains, int threads, CudaLauncher& launcher);

}  // namespace patrac::cuda
