// The kernels of chains of one block in double: a file of their own, since kernels are most of what nvcc compiles.
#define PATRAC_LEVEL cuda
#define PATRAC_VECTOR_BYTES 16
#include "cuda/device/chain_steps-inl.hpp"

template void patrac::cuda::launch_chain_steps<double>(const ChainLaunch<double>&, int, int, CudaLauncher&);
