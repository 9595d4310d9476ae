// One transition of pCN, pCNL or mGrad, whose noise may persist from step to step.
//
// Persistence. In whitened coordinates x = u / C^(1/2), G = C^(1/2) g, with c = 1 - s and k = (s/(2-s))^(1/2), the move
// is one half of an exactly invertible map of (u, p): v as above with the noise p in place of w, and
//   p' = c (p + k G(u)) - (s (2-s))^(1/2) x + k G(v),
// whose density ratio is the move's own. So p may keep a share a of itself, p <- a c p + (1 - a^2 c^2)^(1/2) w, if it
// is turned round after a rejection: a guided walk, as in generalised Hamiltonian Monte Carlo (Horowitz 1991) on the
// prior-preserving splitting (Ottobre, Pillai, Pinski & Stuart 2016). Rejections then cost more than they did; the
// accept threshold persists too, which bunches them (Neal 2020, arXiv:2001.11950). a = 0 is the kernel of the
// textbooks.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/chain/noise.hpp"
#include "cpu/chain/state.hpp"
#include "shared/kernels.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class CrankNicolson {
public:
    static constexpr bool finds_log_likelihood = true;

    // prior_variance (dim,) is read when the step size changes.
    CrankNicolson(KernelKind kernel, const double* prior_variance, std::int64_t dim, double persistence = 0.0)
        : kernel_(kernel),
          prior_variance_(prior_variance),
          persistence_(persistence),
          shrink_(dim),
          drift_(dim),
          noise_(dim),
          ratio_(dim),
          ratio_variance_(dim),
          momentum_(persistence > 0.0 ? noise_size<T>(1, dim) + lanes_v<Vec<T>> : 0),
          kept_(persistence > 0.0 ? dim : 0),
          fresh_(kept_.size()),
          turned_(kept_.size()),
          pull_(kept_.size()),
          push_(kept_.size()) {}

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
            const double ratio = s / (2.0 - s);
            ratio_[i] = static_cast<T>(ratio);
            ratio_variance_[i] = static_cast<T>(ratio * variance);
            if (persistence_ == 0.0) continue;
            const double c = 1.0 - s, a = persistence_ * c;
            kept_[i] = static_cast<T>(a);
            fresh_[i] = static_cast<T>(std::sqrt(1.0 - a * a));
            turned_[i] = static_cast<T>(c);
            pull_[i] = static_cast<T>(std::sqrt(s * (2.0 - s) / variance));
            push_[i] = static_cast<T>(std::sqrt(ratio * variance));
        }
    }

    // Evaluates the starting point; false if l or g is not finite there.
    template <class Target>
    bool start(StateOf<T, Target>& state, Target& target, const PhiloxRoundKeys& keys) {
        if (persistence_ > 0.0) {
            fill_steps(keys, Purpose::persistence, 0, 1, shrink_.size(), momentum_.data());
            threshold_ = 2.0 * UniformStream(keys, Purpose::persistence, 1).next() - 1.0;
        }
        target.evaluate(state, uses_gradient());
        return std::isfinite(log_ratio(state, state));
    }

    // `noise` is that of `step`. Nobody can predict whether a step moves: no branch asks, and the next step need not
    // start anew where a guess was wrong.
    template <class Target>
    Outcome step(const StateOf<T, Target>& current, StateOf<T, Target>& proposed, Target& target, StepNoise<T>& noise,
                 std::int64_t step, bool accept_all) {
        const bool persists = persistence_ > 0.0;
        const T* const w = noise.normals(step);
        if (persists) refresh(w);
        propose(current.theta, current.gradient, persists ? momentum_.data() : w, proposed.theta);
        target.evaluate(proposed, uses_gradient());
        const double ratio = log_ratio(current, proposed);
        const bool finite = std::isfinite(ratio);
        const double log_uniform = noise.log_uniform(step);
        const double log_acceptance = !finite ? -std::numeric_limits<double>::infinity() : accept_all ? 0.0 : ratio;
        if (!persists) {
            const bool moved = finite & (accept_all | (ratio >= 0.0) | (log_uniform < ratio));
            return {moved, finite, log_acceptance, !moved};
        }
        const bool moved = finite && (accept_all || below_threshold(ratio, log_uniform));
        turn(moved, current, proposed);
        return {moved, finite, log_acceptance, !moved};
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
            const D pull = load_wide(ratio_.data() + i) * (to + from) - load_wide(ratio_variance_.data() + i) * both;
            along = fma(to - from, both, along);
            bend = fma(at_to - at_from, pull, bend);
        }
        return v.log_likelihood - u.log_likelihood + 0.5 * reduce_add(bend - along);
    }

private:
    double shrink(double step_size, double variance) const {
        switch (kernel_) {
            case KernelKind::pcn: return pcn_shrink(step_size);
            case KernelKind::mgrad: return mgrad_shrink(step_size, variance);
            default: return pcnl_shrink(step_size);
        }
    }

    // p <- a c p + (1 - a^2 c^2)^(1/2) w.
    void refresh(const T* w) {
        using V = Vec<T>;
        for (std::int64_t i = 0; i < kept_.size(); i += lanes_v<V>) {
            const V fresh = load<V>(fresh_.data() + i) * load<V>(w + i);
            store<V>(momentum_.data() + i, fma(load<V>(kept_.data() + i), load<V>(momentum_.data() + i), fresh));
        }
    }

    // Moves the threshold t, uniform in (-1, 1), on by about a twentieth of its range and accepts if |t| < ratio; t is
    // then t / ratio, which keeps (state, t) uniform under the density.
    bool below_threshold(double log_ratio, double log_uniform) {
        threshold_ += 0.1 * (0.95 + 0.1 * std::exp(log_uniform));
        if (threshold_ > 1.0) threshold_ -= 2.0;
        const double ratio = std::exp(log_ratio);
        if (!(std::abs(threshold_) < ratio)) return false;
        threshold_ /= ratio;
        return true;
    }

    // p' after a move, -p after a rejection.
    template <class Point>
    void turn(bool moved, const Point& u, const Point& v) {
        using V = Vec<T>;
        for (std::int64_t i = 0; i < kept_.size(); i += lanes_v<V>) {
            const V p = load<V>(momentum_.data() + i);
            if (!moved) {
                store<V>(momentum_.data() + i, -p);
                continue;
            }
            const V c = load<V>(turned_.data() + i), push = load<V>(push_.data() + i);
            const V at = c * fma(push, load<V>(u.gradient.data() + i), p) -
                         load<V>(pull_.data() + i) * load<V>(u.theta.data() + i);
            store<V>(momentum_.data() + i, fma(push, load<V>(v.gradient.data() + i), at));
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
    double persistence_;            // a
    double step_size_ = 0.0;
    AlignedArray<T> shrink_, drift_, noise_;  // s, C s, (C s (2 - s))^(1/2)
    AlignedArray<T> ratio_, ratio_variance_;  // r, r C
    // With persistence:
    AlignedArray<T> momentum_;                             // p
    AlignedArray<T> kept_, fresh_, turned_, pull_, push_;  // a c, (1 - a^2 c^2)^(1/2), c, (s (2-s)/C)^(1/2), k C^(1/2)
    double threshold_ = 0.0;                               // t
};

}  // namespace patrac::PATRAC_LEVEL
