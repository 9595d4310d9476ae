// The kernels of a step whose evaluation blocks share.
#define PATRAC_LEVEL cuda
#define PATRAC_VECTOR_BYTES 16
#include "cuda/device/slab_steps.hpp"

namespace patrac::cuda {

template <class T>
void launch_slab_steps(const SlabLaunch<T>& work, int chains, int threads, CudaLauncher& launcher) {
    SlabOrder<T, CudaLauncher>(work, chains, threads, launcher).run();
}

template void launch_slab_steps<float>(const SlabLaunch<float>&, int, int, CudaLauncher&);
template void launch_slab_steps<double>(const SlabLaunch<double>&, int, int, CudaLauncher&);

}  // namespace patrac::cuda
