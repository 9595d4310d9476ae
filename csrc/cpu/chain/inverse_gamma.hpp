// Draws from the inverse-gamma conditional of a noise variance, each a function of (stream, step).
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/chain/noise.hpp"

namespace patrac::PATRAC_LEVEL {

// A draw of density ∝ x^(-shape-1) exp(-rate/x), shape > 0, rate > 0: rate over a gamma draw by Marsaglia & Tsang
// (2000), A simple method for generating gamma variables; for shape < 1 from shape + 1 with their boost.
inline double inverse_gamma(const PhiloxRoundKeys& keys, std::uint64_t step, double shape, double rate) {
    NormalStream normals(keys, Purpose::variance_normal, step);
    UniformStream uniforms(keys, Purpose::variance_uniform, step);
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
