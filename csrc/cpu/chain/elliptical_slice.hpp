// One transition of the elliptical slice sampler (Murray, Adams & MacKay 2010): no step size, no rejection.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "cpu/chain/noise.hpp"
#include "cpu/chain/state.hpp"
#include "schedule/checkpoint.hpp"
#include "shared/kernels.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class EllipticalSlice {
public:
    static constexpr bool finds_log_likelihood = true;
    static constexpr bool follows_prior = true;

    EllipticalSlice(KernelKind, const double* prior_variance, std::int64_t dim, double, const double*)
        : prior_deviation_(dim), direction_(dim) {
        set_prior_variance(prior_variance);
    }

    void set_prior_variance(const double* prior_variance) {
        for (std::int64_t i = 0; i < prior_deviation_.size(); ++i)
            prior_deviation_[i] = static_cast<T>(std::sqrt(prior_variance[i]));
    }

    bool uses_gradient() const { return false; }
    void set_step_size(double) {}
    void set_persistence(double) {}
    void exchange(Checkpoint&) const {}

    template <class Target>
    bool start(StateOf<T, Target>& state, Target& target, const PhiloxRoundKeys&) const {
        target.evaluate(state, false);
        return std::isfinite(state.log_likelihood) && all_finite(state.theta);
    }

    // The ellipse through u and a prior draw; the bracket of its angle shrinks towards u until a point is in the slice.
    template <class Target>
    Outcome step(const StateOf<T, Target>& current, StateOf<T, Target>& proposed, Target& target, StepNoise<T>& noise,
                 std::int64_t step, double) {
        using V = Vec<T>;
        const T* const w = noise.normals(step);
        for (std::int64_t i = 0; i < direction_.size(); i += lanes_v<V>)
            store<V>(direction_.data() + i, load<V>(prior_deviation_.data() + i) * load<V>(w + i));
        const double slice = current.log_likelihood + noise.log_uniform(step);
        UniformStream uniforms(noise.keys(), Purpose::slice, static_cast<std::uint64_t>(step));
        double angle = 2.0 * std::numbers::pi * uniforms.next(), low = angle - 2.0 * std::numbers::pi, high = angle;
        bool finite = true;
        // The bracket shrinks by a third on average; once it is within rounding, the point is u itself.
        for (std::int64_t rejected = 0; rejected < max_points; ++rejected) {
            point(current.theta, angle, proposed.theta);
            target.evaluate(proposed, false);
            if (proposed.log_likelihood > slice && std::isfinite(proposed.log_likelihood) &&
                all_finite(proposed.theta)) {
                return {true, finite, -std::log(static_cast<double>(rejected + 1)), rejected};
            }
            finite = finite && std::isfinite(proposed.log_likelihood);
            (angle < 0.0 ? low : high) = angle;
            angle = low + (high - low) * uniforms.next();
        }
        return {false, finite, -std::numeric_limits<double>::infinity(), max_points};
    }

private:
    static constexpr std::int64_t max_points = 200;

    // v = u + (sin(a) direction - (1 - cos a) u): added to u, so that small angles do not round it.
    void point(const AlignedArray<T>& u, double angle, AlignedArray<T>& v) const {
        using V = Vec<T>;
        const double half = std::sin(0.5 * angle);
        const V along = broadcast<V>(static_cast<T>(std::sin(angle)));
        const V shrink = broadcast<V>(static_cast<T>(2.0 * half * half));
        for (std::int64_t i = 0; i < u.size(); i += lanes_v<V>) {
            const V at = load<V>(u.data() + i);
            store<V>(v.data() + i, at + (along * load<V>(direction_.data() + i) - shrink * at));
        }
    }

    AlignedArray<T> prior_deviation_, direction_;
};

}  // namespace patrac::PATRAC_LEVEL
