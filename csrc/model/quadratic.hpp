// A Gaussian log-likelihood of the last layer alone, in numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace patrac {

// l(x) = constant + slope . x - x' B x / 2, the Gaussian likelihood of a last layer.
struct Quadratic {
    std::vector<double>
        constant;                // (q,): of all outputs, or of each where each has a sampled noise variance of its own
    std::vector<double> slope;   // (K,)
    std::vector<double> matrix;  // B: its diagonal (K,), or all of it (K, K)
    // (K, K) from x to theta where B is diagonal, under the prior x ~ N(0, I); empty where x is theta.
    std::vector<double> to_theta;
    double terms = 0.0;                // outputs times the sum of row weights
    std::vector<double> variance;      // (q,) of the noise that the numbers above are for, where it is sampled
    std::vector<std::int32_t> output;  // (K,) that a coordinate belongs to, 0 .. q - 1: B has no entry for two of them
};

}  // namespace patrac
