// Marks a function as one that device code may call too.
#pragma once

#if defined(__CUDACC__)
#define PATRAC_HOST_DEVICE __host__ __device__
#else
#define PATRAC_HOST_DEVICE
#endif
