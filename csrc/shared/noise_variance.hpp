// Noise variances given the residuals: draws from inverse-gamma conditionals, and the Gaussian log-likelihood at any
// variance (docs/method.md, section 5). For CPU and device.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "shared/host_device.hpp"

namespace patrac::PATRAC_LEVEL {

// l of `terms` Gaussian terms of one variance: -terms/2 log(2 pi variance) - sum of squares / (2 variance).
struct GaussianTerms {
    double terms;

    PATRAC_HOST_DEVICE double constant(double variance) const {
        return -0.5 * terms * std::log(2.0 * std::numbers::pi * variance);
    }
    PATRAC_HOST_DEVICE double sum_of_squares(double log_likelihood, double variance) const {
        return 2.0 * variance * (constant(variance) - log_likelihood);
    }
    PATRAC_HOST_DEVICE double log_likelihood(double sum_of_squares, double variance) const {
        return constant(variance) - 0.5 * sum_of_squares / variance;
    }
    PATRAC_HOST_DEVICE double rescaled(double log_likelihood_from, double from, double to) const {
        return log_likelihood(sum_of_squares(log_likelihood_from, from), to);
    }
};

// A draw of density ∝ x^(-shape-1) exp(-rate/x), shape > 0, rate > 0: rate over a gamma draw by Marsaglia & Tsang
// (2000), A simple method for generating gamma variables; for shape < 1 from shape + 1 with their boost. Candidates
// come from normals.next(), their accept tests from uniforms.next().
template <class Normals, class Uniforms>
PATRAC_DISPATCH double inverse_gamma(Normals& normals, Uniforms& uniforms, double shape, double rate) {
    const double boost = shape < 1.0 ? std::log(uniforms.next()) / shape : 0.0;
    const double d = (shape < 1.0 ? shape + 1.0 : shape) - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
    for (;;) {
        const double x = normals.next(), cube_root = 1.0 + c * x, u = uniforms.next();
        if (cube_root <= 0.0) continue;
        const double v = cube_root * cube_root * cube_root;
        if (std::log(u) < 0.5 * x * x + d * (1.0 - v + std::log(v))) return rate / (d * v) * std::exp(-boost);
    }
}

}  // namespace patrac::PATRAC_LEVEL
