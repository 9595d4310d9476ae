// One transition of pCN or pCNL on a DiagonalTarget: proposal and acceptance ratio in one loop over the coordinates.
//
// With l(x) = constant + a'x - x'Bx/2, B = diag(b), and the prior N(0, I) the gradient is a - Bx, so the move of
// shared/crank_nicolson.hpp is linear in u and its log ratio a difference,
//   v = u + s a - s (1 + b) u + (s (2 - s))^(1/2) w    ratio r/2 (E(u) - E(v)), E(x) = sum_i b x ((1 + b) x - 2 a)
// since l(v) - l(u) = <v - u, g(u) + g(v)>/2. pCN (g = 0): no a and b in the move, r = 1 and E = -2 l + constant.
// Neither l nor g is computed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/chain/noise.hpp"
#include "cpu/chain/state.hpp"
#include "cpu/chain/target.hpp"
#include "schedule/run_config.hpp"
#include "shared/crank_nicolson.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class DiagonalCrankNicolson {
public:
    static constexpr bool finds_log_likelihood = false;
    static constexpr bool follows_prior = false;

    // Whether this transition implements the run's kernel: pCN or pCNL without persistence.
    static bool supports(const RunConfig& config) {
        return (config.kernel == KernelKind::pcn || config.kernel == KernelKind::pcnl) && config.persistence == 0.0;
    }

    DiagonalCrankNicolson(KernelKind kernel, const double*, std::int64_t dim, double, const double*)
        : langevin_(kernel == KernelKind::pcnl),
          dim_(dim),
          size_((dim + lanes_v<V> - 1) / lanes_v<V> * lanes_v<V>),
          push_(size_),
          pull_(size_),
          noise_(size_),
          linear_(size_),
          square_(size_) {}

    bool uses_gradient() const { return false; }

    void set_persistence(double) {}      // has none
    void exchange(Checkpoint&) const {}  // follow() computes all it keeps from the state

    void set_step_size(double step_size) {
        if (step_size == step_size_) return;
        step_size_ = step_size;
        shrink_ = langevin_ ? pcnl_shrink(step_size) : pcn_shrink(step_size);
        half_ratio_ = langevin_ ? 0.5 * shrink_ / (2.0 - shrink_) : 0.5;
        std::fill_n(noise_.data(), dim_, static_cast<T>(std::sqrt(shrink_ * (2.0 - shrink_))));
        revision_ = -1;
    }

    bool start(State<T, Nothing>& state, DiagonalTarget<T>& target, const PhiloxRoundKeys&) {
        target.evaluate(state, false);
        follow(state, target);
        return std::isfinite(state.log_likelihood) && std::isfinite(energy_);
    }

    // As CrankNicolson::step(), without a branch on acceptance.
    Outcome step(const State<T, Nothing>& current, State<T, Nothing>& proposed, DiagonalTarget<T>& target,
                 StepNoise<T>& noise, std::int64_t step, double free_from) {
        const T* const w = noise.normals(step);
        if (target.revision() != revision_) follow(current, target);
        const T *const u = current.theta.data(), *const push = push_.data(), *const pull = pull_.data(),
                       *const scale = noise_.data();
        T* const v = proposed.theta.data();
        D sum = {};
        for (std::int64_t i = 0, size = size_; i < size; i += lanes_v<V>) {
            const V at = load<V>(u + i);
            const V move = fma(load<V>(scale + i), load<V>(w + i), fma(load<V>(pull + i), at, load<V>(push + i)));
            const V to = at + move;
            store<V>(v + i, to);
            sum += energy_of(to, i);
        }
        const double energy = reduce_add(sum), ratio = half_ratio_ * (energy_ - energy);
        const bool finite = std::isfinite(ratio);
        // below_uniform() and recorded_ratio() of shared/crank_nicolson.hpp, written out: as calls they take a tenth of
        // a step of a dozen parameters (GCC 12, level v3).
        const bool moved = finite & ((ratio >= free_from) | (ratio >= 0.0) | (noise.log_uniform(step) < ratio));
        energy_ = moved ? energy : energy_;
        return {moved, finite, finite ? ratio : -std::numeric_limits<double>::infinity(), !moved};
    }

private:
    using V = Vec<T>;
    using D = Vec<double>;

    // The terms of E for the coordinates in `x`, from i on, in float64: the ratio is a difference of large numbers. An
    // entry that is not finite makes the sum infinite or NaN.
    PATRAC_FN D energy_of(V x, std::int64_t i) const {
        D sum = {};
        unrolled<wide_parts<T>>([&](auto part) __attribute__((always_inline)) {
            const std::int64_t at = i + part * lanes_v<D>;
            const D wide = widened_part<part()>(x);
            sum = fma(wide, fma(load<D>(square_.data() + at), wide, load<D>(linear_.data() + at)), sum);
        });
        return sum;
    }

    // Recomputes the coefficients for the target's variance and the step size.
    [[gnu::noinline]] void follow(const State<T, Nothing>& current, const DiagonalTarget<T>& target) {
        revision_ = target.revision();
        const D s = broadcast<D>(shrink_), one = broadcast<D>(1.0), langevin = broadcast<D>(langevin_ ? 1.0 : 0.0);
        for (std::int64_t i = 0; i < dim_; i += lanes_v<D>) {
            const D scale = load<D>(target.scale().data() + i);
            const D a = scale * load<D>(target.slope().data() + i), b = scale * load<D>(target.curvature().data() + i);
            const D own = langevin * b;
            store_narrow(push_.data() + i, langevin * s * a);
            store_narrow(pull_.data() + i, -s * (one + own));
            store<D>(linear_.data() + i, broadcast<D>(-2.0) * a * (langevin_ ? b : one));
            store<D>(square_.data() + i, b * (one + own));
        }
        D sum = {};
        for (std::int64_t i = 0; i < size_; i += lanes_v<V>) sum += energy_of(load<V>(current.theta.data() + i), i);
        energy_ = reduce_add(sum);
    }

    bool langevin_;
    std::int64_t dim_;   // K
    std::int64_t size_;  // of the arrays, whole vectors: noise_ and push_ are zero beyond K, so v stays zero there
    double step_size_ = 0.0;
    std::int64_t revision_ = -1;              // of the target's scales at which the coefficients hold
    double shrink_ = 0.0, half_ratio_ = 0.0;  // s, r/2
    AlignedArray<T> push_, pull_, noise_;     // s a, -s (1 + b), (s (2 - s))^(1/2)
    AlignedArray<double> linear_, square_;    // E = sum_i x (square x + linear)
    double energy_ = 0.0;                     // E of the current state
};

}  // namespace patrac::PATRAC_LEVEL
