// One transition of pCN, pCNL or mGrad.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "../cpu/noise.hpp"
#include "../patrac.hpp"
#include "../shared/kernels.hpp"
#include "state.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class CrankNicolson {
public:
    // prior_variance (dim,) is read when the step size changes.
    CrankNicolson(KernelKind kernel, const double* prior_variance, std::int64_t dim)
        : kernel_(kernel),
          prior_variance_(prior_variance),
          shrink_(dim),
          drift_(dim),
          noise_(dim),
          ratio_(dim),
          ratio_variance_(dim) {}

    bool uses_gradient() const { return kernel_ != KernelKind::pcn; }

    // beta of pCN, delta of the others.
    void set_step_size(double step_size) {
        if (step_size == step_size_) return;
        step_size_ = step_size;
        for (std::int64_t i = 0; i < shrink_.size(); ++i) {
            const double variance = prior_variance_[i], s = shrink(step_size, variance);
            shrink_[i] = static_cast<T>(s);
            drift_[i] = static_cast<T>(variance * s);
            noise_[i] = static_cast<T>(std::sqrt(variance * s * (2.0 - s)));
            ratio_[i] = s / (2.0 - s);
            ratio_variance_[i] = ratio_[i] * variance;
        }
    }

    // Evaluates the starting point; false if l or g is not finite there.
    template <class Target>
    bool start(StateOf<T, Target>& state, Target& target) const {
        target.evaluate(state, uses_gradient());
        return std::isfinite(log_ratio(state, state));
    }

    // `noise` is that of `step`. `current` and `proposed` are swapped by an accepted move.
    template <class Target>
    Outcome step(StateOf<T, Target>& current, StateOf<T, Target>& proposed, Target& target, StepNoise<T>& noise,
                 std::int64_t step, bool accept_all) const {
        propose(current.theta, current.gradient, noise.normals(step), proposed.theta);
        target.evaluate(proposed, uses_gradient());
        const double ratio = log_ratio(current, proposed);
        if (!std::isfinite(ratio)) return {false, false, 0.0, 1};
        const bool moved = accept_all || ratio >= 0.0 || noise.log_uniform(step) < ratio;
        if (moved) std::swap(current, proposed);
        return {moved, true, accept_all || ratio >= 0.0 ? 1.0 : std::exp(ratio), !moved};
    }

    // Of pi(v) q(v, u) / (pi(u) q(u, v)). An entry of v or g(v) that is not finite leaves its mark in a sum: infinity,
    // or NaN from infinity times zero. So do, in float64, products too large for the ratio to be computed.
    template <class Point>
    double log_ratio(const Point& u, const Point& v) const {
        using D = Vec<double>;
        D along = {}, bend = {};
        for (std::int64_t i = 0; i < u.theta.size(); i += lanes_v<D>) {
            const D from = load_wide(u.theta.data() + i), to = load_wide(v.theta.data() + i);
            const D at_from = load_wide(u.gradient.data() + i), at_to = load_wide(v.gradient.data() + i);
            const D both = at_to + at_from;
            const D pull = load<D>(ratio_.data() + i) * (to + from) - load<D>(ratio_variance_.data() + i) * both;
            along = fma(to - from, both, along);
            bend = fma(at_to - at_from, pull, bend);
        }
        return v.log_likelihood - u.log_likelihood + 0.5 * (reduce_add(bend) - reduce_add(along));
    }

private:
    double shrink(double step_size, double variance) const {
        switch (kernel_) {
            case KernelKind::pcn: return pcn_shrink(step_size);
            case KernelKind::mgrad: return mgrad_shrink(step_size, variance);
            default: return pcnl_shrink(step_size);
        }
    }

    void propose(const AlignedArray<T>& u, const AlignedArray<T>& gradient, const T* w, AlignedArray<T>& v) const {
        using V = Vec<T>;
        // Whole vectors: beyond K the coefficients are zero, so v stays zero there whatever the noise is.
        for (std::int64_t i = 0; i < u.size(); i += lanes_v<V>) {
            const V at = load<V>(u.data() + i);
            V move = load<V>(noise_.data() + i) * load<V>(w + i);
            move = fma(load<V>(drift_.data() + i), load<V>(gradient.data() + i), move);
            store<V>(v.data() + i, at + (move - load<V>(shrink_.data() + i) * at));
        }
    }

    KernelKind kernel_;
    const double* prior_variance_;  // outlives the kernel
    double step_size_ = 0.0;
    AlignedArray<T> shrink_, drift_, noise_;       // s, C s, (C s (2 - s))^(1/2)
    AlignedArray<double> ratio_, ratio_variance_;  // r, r C
};

}  // namespace patrac::PATRAC_LEVEL
