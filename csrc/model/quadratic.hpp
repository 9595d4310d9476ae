// A Gaussian log-likelihood of the last layer alone, in numbers.
#pragma once

#include <vector>

namespace patrac {

// l(x) = constant + slope . x - x' B x / 2, the Gaussian likelihood of a last layer.
struct Quadratic {
    double constant = 0.0;
    std::vector<double> slope;   // (K,)
    std::vector<double> matrix;  // B: its diagonal (K,), or all of it (K, K)
    // (K, K) from x to theta where B is diagonal, under the prior x ~ N(0, I); empty where x is theta.
    std::vector<double> to_theta;
    double terms = 0.0;     // outputs times the sum of row weights
    double variance = 1.0;  // of the noise that the numbers above are for, where it is sampled
};

}  // namespace patrac
