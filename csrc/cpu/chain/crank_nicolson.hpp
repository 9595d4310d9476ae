// One transition of pCN, pCNL or mGrad, whose noise may persist from step to step (the formulas are those of
// shared/crank_nicolson.hpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/chain/noise.hpp"
#include "cpu/chain/state.hpp"
#include "schedule/checkpoint.hpp"
#include "shared/crank_nicolson.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class CrankNicolson {
public:
    static constexpr bool finds_log_likelihood = true;
    static constexpr bool follows_prior = true;

    // prior_variance (dim,) is read when the step size changes; so is step_factor, (dim,) or null for ones.
    CrankNicolson(KernelKind kernel, const double* prior_variance, std::int64_t dim, double persistence = 0.0,
                  const double* step_factor = nullptr)
        : kernel_(kernel),
          prior_variance_(prior_variance),
          step_factor_(step_factor),
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

    bool uses_gradient() const { return patrac::uses_gradient(kernel_); }

    // beta of pCN, delta of the others.
    void set_step_size(double step_size) {
        if (step_size == step_size_) return;
        step_size_ = step_size;
        find_coefficients();
    }

    // a of a kernel that was built with a persistence; another value leaves the law of the momentum, N(0, I), as it is.
    void set_persistence(double persistence) {
        if (persistence == persistence_) return;
        persistence_ = persistence;
        find_coefficients();
    }

    // The momentum is that of whitened coordinates, N(0, I) whatever the variances are, and stays as it is.
    void set_prior_variance(const double* prior_variance) {
        prior_variance_ = prior_variance;
        find_coefficients();
    }

    // Evaluates the starting point; false if l or g is not finite there.
    template <class Target>
    bool start(StateOf<T, Target>& state, Target& target, const PhiloxRoundKeys& keys) {
        if (persistence_ > 0.0) {
            fill_steps(keys, Purpose::persistence, 0, 1, shrink_.size(), momentum_.data());
            momentum_sign_ = T(1);
            threshold_ = 2.0 * UniformStream(keys, Purpose::persistence, 1).next() - 1.0;
        }
        target.evaluate(state, uses_gradient());
        return std::isfinite(log_ratio(state, state));
    }

    // What a step leaves to the next one beside the state.
    void exchange(Checkpoint& state) {
        state.exchange_array(momentum_.data(), kept_.size());  // what lies beyond is multiplied by zeros
        state.exchange(momentum_sign_, threshold_);
    }

    // `noise` is that of `step`. Whether a step is accepted is unpredictable, so without persistence no branch depends
    // on it: a wrong guess of the processor would restart the next step.
    template <class Target>
    Outcome step(const StateOf<T, Target>& current, StateOf<T, Target>& proposed, Target& target, StepNoise<T>& noise,
                 std::int64_t step, double free_from) {
        const bool persists = persistence_ > 0.0;
        const T* const w = noise.normals(step);
        if (persists)
            refresh_and_propose(current.theta, current.gradient, w, proposed.theta);
        else
            propose(current.theta, current.gradient, w, proposed.theta);
        target.evaluate(proposed, uses_gradient());
        const double ratio = log_ratio(current, proposed);
        const bool finite = std::isfinite(ratio);
        const double log_uniform = noise.log_uniform(step);
        const double recorded = recorded_ratio(finite, ratio);
        if (!persists) {
            const bool moved = finite & ((ratio >= free_from) | below_uniform(ratio, log_uniform));
            return {moved, finite, recorded, !moved};
        }
        const bool moved = finite && (ratio >= free_from || below_threshold(ratio, log_uniform, threshold_));
        turn(moved, current, proposed);
        return {moved, finite, recorded, !moved};
    }

    // Of pi(v) q(v, u) / (pi(u) q(u, v)). An entry of v or g(v) that is not finite makes a sum infinite or, times
    // zero, NaN; so do products that overflow float64.
    template <class Point>
    double log_ratio(const Point& u, const Point& v) const {
        using D = Vec<double>;
        LogRatioSums<D> sums;
        for (std::int64_t i = 0; i < u.theta.size(); i += lanes_v<D>)
            sums.add(load_wide(u.theta.data() + i), load_wide(v.theta.data() + i), load_wide(u.gradient.data() + i),
                     load_wide(v.gradient.data() + i), load_wide(ratio_.data() + i),
                     load_wide(ratio_variance_.data() + i));
        return v.log_likelihood - u.log_likelihood + 0.5 * reduce_add(sums.bend - sums.along);
    }

private:
    void find_coefficients() {
        for (std::int64_t i = 0; i < shrink_.size(); ++i) {
            const double step_size = step_factor_ ? step_size_ * step_factor_[i] : step_size_;
            const MoveCoefficients<double> of(kernel_, step_size, prior_variance_[i], persistence_);
            shrink_[i] = static_cast<T>(of.shrink);
            drift_[i] = static_cast<T>(of.drift());
            noise_[i] = static_cast<T>(of.noise());
            ratio_[i] = static_cast<T>(of.ratio());
            ratio_variance_[i] = static_cast<T>(of.ratio_variance());
            if (persistence_ == 0.0) continue;
            kept_[i] = static_cast<T>(of.kept());
            fresh_[i] = static_cast<T>(of.fresh());
            turned_[i] = static_cast<T>(of.turned());
            pull_[i] = static_cast<T>(of.pull());
            push_[i] = static_cast<T>(of.push());
        }
    }

    // p' after a move, -p after a rejection.
    template <class Point>
    void turn(bool moved, const Point& u, const Point& v) {
        using V = Vec<T>;
        momentum_sign_ = moved ? T(1) : T(-1);
        if (!moved) return;
        for (std::int64_t i = 0; i < kept_.size(); i += lanes_v<V>)
            store<V>(momentum_.data() + i, turned_momentum(load<V>(momentum_.data() + i), load<V>(u.theta.data() + i),
                                                           load<V>(u.gradient.data() + i),
                                                           load<V>(v.gradient.data() + i), load<V>(turned_.data() + i),
                                                           load<V>(pull_.data() + i), load<V>(push_.data() + i)));
    }

    // A vector of v. Beyond K the coefficients are zero, so v stays zero there whatever the noise is.
    PATRAC_FN Vec<T> proposal_at(std::int64_t i, const T* u, const T* gradient, Vec<T> noise_value) const {
        using V = Vec<T>;
        return proposal(load<V>(u + i), load<V>(gradient + i), noise_value, load<V>(shrink_.data() + i),
                        load<V>(drift_.data() + i), load<V>(noise_.data() + i));
    }

    void propose(const AlignedArray<T>& u, const AlignedArray<T>& gradient, const T* w, AlignedArray<T>& v) const {
        using V = Vec<T>;
        for (std::int64_t i = 0; i < u.size(); i += lanes_v<V>)
            store<V>(v.data() + i, proposal_at(i, u.data(), gradient.data(), load<V>(w + i)));
    }

    // p <- a c p + (1 - a^2 c^2)^(1/2) w, and the proposal with p for the noise.
    void refresh_and_propose(const AlignedArray<T>& u, const AlignedArray<T>& gradient, const T* w,
                             AlignedArray<T>& v) {
        using V = Vec<T>;
        const V sign = broadcast<V>(momentum_sign_);
        for (std::int64_t i = 0; i < u.size(); i += lanes_v<V>) {
            const V p = refreshed_momentum(sign * load<V>(momentum_.data() + i), load<V>(w + i),
                                           load<V>(kept_.data() + i), load<V>(fresh_.data() + i));
            store<V>(momentum_.data() + i, p);
            store<V>(v.data() + i, proposal_at(i, u.data(), gradient.data(), p));
        }
    }

    KernelKind kernel_;
    const double* prior_variance_;  // outlives the kernel
    const double* step_factor_;     // outlives the kernel
    double persistence_;            // a
    double step_size_ = 0.0;
    AlignedArray<T> shrink_, drift_, noise_;  // s, C s, (C s (2 - s))^(1/2)
    AlignedArray<T> ratio_, ratio_variance_;  // r, r C
    // With persistence:
    AlignedArray<T> momentum_;                             // p is momentum_sign_ times this
    T momentum_sign_ = T(1);                               // -1 after a rejection: no pass over the array
    AlignedArray<T> kept_, fresh_, turned_, pull_, push_;  // a c, (1 - a^2 c^2)^(1/2), c, (s (2-s)/C)^(1/2), k C^(1/2)
    double threshold_ = 0.0;                               // t
};

}  // namespace patrac::PATRAC_LEVEL
