// Draws of variances from their conditionals, each a function of (stream, step): inverse-gamma, or by slice sampling.
#pragma once

#include <cmath>
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

// What a draw of the noise variances of one step takes: streams of the rows, output after output, and of the variances,
// whose uniforms slice() takes in place of `values`.
struct VarianceStreams {
    InverseGammaStream rows, values;
    UniformStream uniforms;

    VarianceStreams(const PhiloxRoundKeys& keys, std::uint64_t step)
        : rows(keys, Purpose::mixture_normal, Purpose::mixture_uniform, step),
          values(keys, Purpose::variance_normal, Purpose::variance_uniform, step),
          uniforms(keys, Purpose::variance_uniform, step) {}

    // A transition from t that leaves a density invariant, given its logarithm but for a constant: slice sampling by
    // stepping out and shrinkage (Neal 2003, Slice sampling). A `width` that does not depend on t; other widths cost
    // evaluations alone. Stays at t where the density is not finite.
    template <class LogDensity>
    double slice(double t, double width, const LogDensity& log_density) {
        const double level = log_density(t) + std::log(uniforms.next());
        if (!std::isfinite(level)) return t;
        double left = t - width * uniforms.next(), right = left + width;
        while (log_density(left) > level) left -= width;
        while (log_density(right) > level) right += width;
        for (;;) {
            const double proposed = left + (right - left) * uniforms.next();
            if (log_density(proposed) >= level) return proposed;
            (proposed < t ? left : right) = proposed;
        }
    }
};

}  // namespace patrac::PATRAC_LEVEL
