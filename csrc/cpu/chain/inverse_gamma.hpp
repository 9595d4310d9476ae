// Draws from inverse-gamma distributions, each a function of (stream, step): conditionals of variances.
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/chain/noise.hpp"

namespace patrac::PATRAC_LEVEL {

// Independent draws of one step, one after the other.
class InverseGammaStream {
public:
    // The keys outlive the stream; candidates and their accept tests have a purpose each.
    InverseGammaStream(const PhiloxRoundKeys& keys, Purpose normals, Purpose uniforms, std::uint64_t step)
        : normals_(keys, normals, step), uniforms_(keys, uniforms, step) {}

    // A draw of density ∝ x^(-shape-1) exp(-rate/x), shape > 0, rate > 0: rate over a gamma draw by Marsaglia & Tsang
    // (2000), A simple method for generating gamma variables; for shape < 1 from shape + 1 with their boost.
    double next(double shape, double rate) {
        const double boost = shape < 1.0 ? std::log(uniforms_.next()) / shape : 0.0;
        const double d = (shape < 1.0 ? shape + 1.0 : shape) - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
        for (;;) {
            const double x = normals_.next(), cube_root = 1.0 + c * x, u = uniforms_.next();
            if (cube_root <= 0.0) continue;
            const double v = cube_root * cube_root * cube_root;
            if (std::log(u) < 0.5 * x * x + d * (1.0 - v + std::log(v))) return rate / (d * v) * std::exp(-boost);
        }
    }

private:
    NormalStream normals_;
    UniformStream uniforms_;
};

}  // namespace patrac::PATRAC_LEVEL
