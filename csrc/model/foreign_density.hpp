// A log-likelihood that is given as a function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace patrac {

// Writes l(x), x (n,), to *logp and its gradient (n,) to grad. Returns 0; any other number ends the run. A point
// outside the support has a logp that is not finite. Chains call it from several threads at once.
using DensityFunction = int (*)(std::size_t n, const double* x, double* grad, double* logp, void* context);
// The same for x (batch, n), grad (batch, n) and logp (batch,), called by one thread at a time.
using BatchedDensityFunction = int (*)(std::size_t batch, std::size_t n, const double* x, double* grad, double* logp,
                                       void* context);

struct ForeignDensity {
    DensityFunction one = nullptr;  // one of the two is given
    BatchedDensityFunction batched = nullptr;
    void* context = nullptr;  // outlives the run
    std::int64_t dim = 0;     // n
};

}  // namespace patrac
