// What the plan found, in numbers.
#pragma once

#include <cstdint>

namespace patrac {

// What the plan found in one layer; also the operation counts that the benchmarks' floor is made of.
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
