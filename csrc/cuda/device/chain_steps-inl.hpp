// The definition of chain_steps.hpp, which chain_steps_f32.cu and chain_steps_f64.cu compile.
#pragma once

#include "cuda/device/chain_steps.hpp"

namespace patrac::cuda {

template <class T>
void launch_chain_steps(const ChainLaunch<T>& work, int chains, int threads, CudaLauncher& launcher) {
    launch_chains(work, chains, threads, launcher);
}

}  // namespace patrac::cuda
