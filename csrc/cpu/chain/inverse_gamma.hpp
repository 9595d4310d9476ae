// Draws from inverse-gamma distributions, each a function of (stream, step): conditionals of variances.
#pragma once

#include <cstdint>

#include "cpu/chain/noise.hpp"
#include "shared/noise_variance.hpp"

namespace patrac::PATRAC_LEVEL {

// Independent draws of one step, one after the other.
class InverseGammaStream {
public:
    // The keys outlive the stream; candidates and their accept tests have a purpose each.
    InverseGammaStream(const PhiloxRoundKeys& keys, Purpose normals, Purpose uniforms, std::uint64_t step)
        : normals_(keys, normals, step), uniforms_(keys, uniforms, step) {}

    // See inverse_gamma().
    double next(double shape, double rate) { return inverse_gamma(normals_, uniforms_, shape, rate); }

private:
    NormalStream normals_;
    UniformStream uniforms_;
};

// What a draw of the noise variances of one step takes: streams of the rows, output after output, and of the variances.
struct VarianceStreams {
    InverseGammaStream rows, values;

    VarianceStreams(const PhiloxRoundKeys& keys, std::uint64_t step)
        : rows(keys, Purpose::mixture_normal, Purpose::mixture_uniform, step),
          values(keys, Purpose::variance_normal, Purpose::variance_uniform, step) {}
};

}  // namespace patrac::PATRAC_LEVEL
