// Statistics of a layer of the plan.
#pragma once

#include <cstdint>

namespace patrac {

// Counts of one layer, from which the benchmarks also compute their floor.
struct LayerReport {
    std::int64_t nodes = 0;             // N_l
    std::int64_t varying = 0;           // nodes that some Bayesian parameter reaches
    std::int64_t varying_sources = 0;   // varying nodes read
    std::int64_t constant_sources = 0;  // constant nodes (or inputs) read through Bayesian weights
    std::int64_t offsets = 0;           // nodes with a cached offset, one value a row each
    std::int64_t bayesian = 0;          // Bayesian parameters of the layer
    std::int64_t gradient_block = 0;    // entries of the dense block that covers them, biases left out
};

}  // namespace patrac
