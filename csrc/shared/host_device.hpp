// Marks a function as one that device code may call too.
#pragma once

#if defined(__CUDACC__)
#define PATRAC_HOST_DEVICE __host__ __device__
#else
#define PATRAC_HOST_DEVICE
#endif

// Marks a function that calls what its caller passes: on a device, device code alone may call it.
#if defined(__CUDACC__)
#define PATRAC_DISPATCH __device__ __forceinline__
#else
#define PATRAC_DISPATCH inline __attribute__((always_inline))
#endif
