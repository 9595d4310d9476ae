// Steps of chains whose evaluations blocks share, on a stream.
#pragma once

#include "cuda/device/cuda_launcher.hpp"

namespace patrac::cuda {

template <class T>
void launch_slab_steps(const SlabLaunch<T>& work, int chains, int threads, CudaLauncher& launcher);

}  // namespace patrac::cuda
