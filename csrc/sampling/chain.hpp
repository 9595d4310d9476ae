// One Markov chain: pCN and pCNL transitions, warm-up, thinning, and where the kept draws go.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "../cpu/noise.hpp"
#include "../cpu/target.hpp"
#include "../cpu/wide.hpp"
#include "../shared/kernels.hpp"
#include "schedule.hpp"
#include "threads.hpp"

namespace patrac::PATRAC_LEVEL {

// The prior N(0, C), C diagonal, as the proposals use it.
template <class T>
struct PriorScale {
    AlignedArray<T> variance;   // C
    AlignedArray<T> deviation;  // C^(1/2)

    PriorScale(const double* prior_variance, std::int64_t dim) : variance(dim), deviation(dim) {
        for (std::int64_t i = 0; i < dim; ++i) {
            variance[i] = static_cast<T>(prior_variance[i]);
            deviation[i] = static_cast<T>(std::sqrt(prior_variance[i]));
        }
    }
};

// False if an entry is infinite or NaN. An infinite weight into a saturated activation leaves l and g finite, so they
// do not show it. Reads whole vectors: the array ends in zeros (AlignedArray).
template <class T>
bool all_finite(const AlignedArray<T>& x) {
    Vec<double> sum = {};
    for (std::int64_t i = 0; i < x.size(); i += lanes_v<Vec<double>>)
        sum += load_wide(x.data() + i) * broadcast<Vec<double>>(0.0);
    return reduce_add(sum) == 0.0;
}

// A point with what the next step needs of it.
template <class T>
struct State {
    AlignedArray<T> theta;     // (K,)
    AlignedArray<T> gradient;  // (K,) of the log-likelihood; unused by pCN
    double log_likelihood = 0.0;
    double g_dot_cg = 0.0;  // |C^(1/2) g|^2

    explicit State(std::int64_t dim) : theta(dim), gradient(dim) {}
    bool finite() const { return std::isfinite(log_likelihood) && std::isfinite(g_dot_cg) && all_finite(theta); }
    template <class Target>
    void evaluate(Target& target, const PriorScale<T>& prior, KernelKind kernel);
};

// The inner products below are sums in float64 over whole vectors: the arrays end in zeros (AlignedArray).

// <g, C g>.
template <class T>
double scaled_square(const AlignedArray<T>& g, const AlignedArray<T>& variance) {
    Vec<double> sum = {};
    for (std::int64_t i = 0; i < g.size(); i += lanes_v<Vec<double>>) {
        const auto slope = load_wide(g.data() + i);
        sum += load_wide(variance.data() + i) * slope * slope;
    }
    return reduce_add(sum);
}

// Inner products of a move's two gradients with its two ends.
struct MoveProducts {
    double forward_difference, forward_sum;    // <v - u, g(u)>, <u + v, g(u)>
    double backward_difference, backward_sum;  // <u - v, g(v)>, <u + v, g(v)>
};

template <class T>
MoveProducts move_products(const State<T>& u, const State<T>& v) {
    using D = Vec<double>;
    D forward_difference = {}, forward_sum = {}, backward_difference = {}, backward_sum = {};
    for (std::int64_t i = 0; i < u.theta.size(); i += lanes_v<D>) {
        const D from = load_wide(u.theta.data() + i), to = load_wide(v.theta.data() + i);
        const D at_from = load_wide(u.gradient.data() + i), at_to = load_wide(v.gradient.data() + i);
        const D difference = to - from, sum = to + from;
        forward_difference += difference * at_from;
        forward_sum += sum * at_from;
        backward_difference -= difference * at_to;
        backward_sum += sum * at_to;
    }
    return {reduce_add(forward_difference), reduce_add(forward_sum), reduce_add(backward_difference),
            reduce_add(backward_sum)};
}

inline bool uses_gradient(KernelKind kernel) {
    return kernel == KernelKind::pcnl;
}

template <class T>
template <class Target>
void State<T>::evaluate(Target& target, const PriorScale<T>& prior, KernelKind kernel) {
    const bool slope = uses_gradient(kernel);
    log_likelihood = target.evaluate(theta, slope ? &gradient : nullptr);
    g_dot_cg = slope ? scaled_square(gradient, prior.variance) : 0.0;
}

// Log of pi(v) q(v, u) / (pi(u) q(u, v)).
template <class T>
double log_acceptance(const State<T>& u, const State<T>& v, KernelKind kernel, double step_size) {
    if (!uses_gradient(kernel)) return v.log_likelihood - u.log_likelihood;
    const MoveProducts move = move_products(u, v);
    return pcnl_rho(u.log_likelihood, move.forward_difference, move.forward_sum, u.g_dot_cg, step_size) -
           pcnl_rho(v.log_likelihood, move.backward_difference, move.backward_sum, v.g_dot_cg, step_size);
}

// What all chains of a run share, read only.
template <class T>
struct RunShared {
    const RunConfig& config;
    const RunBuffers<T>& buffers;
    const PriorScale<T> prior;
};

template <class T, class Target>
class Chain final : public ChainTask {
public:
    Chain(Target target, std::int64_t dim, const RunShared<T>& shared, std::int64_t index)
        : shared_(shared),
          target_(std::move(target)),
          index_(index),
          key_(stream_key(shared.config.seed, static_cast<std::uint32_t>(index))),
          schedule_(shared.config),
          current_(dim),
          proposed_(dim),
          noise_(key_, dim),
          total_steps_(shared.config.total_steps()) {
        std::copy_n(shared.buffers.init + index * dim, dim, current_.theta.data());
        evaluate(current_);
        if (!current_.finite())
            throw std::invalid_argument(
                "init: the log-likelihood or its gradient is not finite at the starting point "
                "of chain " +
                std::to_string(index) + "; start from another point or use dtype=\"float64\"");
    }

    bool finished() const override { return step_ == total_steps_; }

    void advance(double seconds, const std::atomic<bool>& stop) override {
        using Clock = std::chrono::steady_clock;
        auto last_look = Clock::now();
        const auto end = last_look + std::chrono::duration<double>(seconds);
        while (!finished() && !stop.load(std::memory_order_relaxed)) {
            step();
            // A clock reading costs about as much as a few hundred flops: look every 16 steps of a small model.
            if ((step_ & 15) == 0 || slow_) {
                const auto now = Clock::now();
                slow_ = (now - last_look) > std::chrono::milliseconds(1);
                last_look = now;
                if (now >= end) break;
            }
        }
        steps_done.store(step_, std::memory_order_relaxed);
        accepted.store(accepted_, std::memory_order_relaxed);
        shared_.buffers.draws_done[index_] = draws_;
        shared_.buffers.nonfinite[index_] = nonfinite_;
        shared_.buffers.warmup_nonfinite[index_] = warmup_nonfinite_;
    }

private:
    void evaluate(State<T>& state) { state.evaluate(target_, shared_.prior, shared_.config.kernel); }

    // v = u + (drift C g(u) + noise C^(1/2) w - shrink u), w standard normal.
    void propose(const Proposal& by) {
        const T shrink = static_cast<T>(by.shrink), drift = static_cast<T>(by.drift), noise = static_cast<T>(by.noise);
        const T* const u = current_.theta.data();
        const T* const g = current_.gradient.data();
        const T* const variance = shared_.prior.variance.data();
        const T* const deviation = shared_.prior.deviation.data();
        const T* const w = noise_.normals(step_);
        T* const v = proposed_.theta.data();
        for (std::int64_t i = 0; i < proposed_.theta.size(); ++i)
            v[i] = u[i] + (drift * (variance[i] * g[i]) + noise * (deviation[i] * w[i]) - shrink * u[i]);
    }

    bool accept(double step_size) {
        evaluate(proposed_);
        if (!proposed_.finite()) {
            ++(schedule_.sampling() ? nonfinite_ : warmup_nonfinite_);
            return false;
        }
        if (schedule_.phase().accept_all) return true;
        const double log_ratio = log_acceptance(current_, proposed_, shared_.config.kernel, step_size);
        return log_ratio >= 0.0 || noise_.log_uniform(step_) < log_ratio;
    }

    void step() {
        const double step_size = schedule_.step_size();
        propose(uses_gradient(shared_.config.kernel) ? pcnl_proposal(step_size) : pcn_proposal(step_size));
        const bool moved = accept(step_size);
        if (moved) std::swap(current_, proposed_);
        ++step_;
        accepted_ += moved;
        if (schedule_.sampling()) {
            accepted_since_draw_ += moved;
            if (++steps_since_draw_ == shared_.config.thin) keep_draw(step_size);
        }
        if (schedule_.record(moved)) end_phase();
    }

    void keep_draw(double step_size) {
        const RunBuffers<T>& out = shared_.buffers;
        const std::int64_t at = index_ * shared_.config.draws + draws_++;
        std::copy_n(current_.theta.data(), current_.theta.size(), out.theta + at * current_.theta.size());
        out.log_likelihood[at] = current_.log_likelihood;
        out.acceptance_rate[at] = static_cast<double>(accepted_since_draw_) / static_cast<double>(steps_since_draw_);
        out.step_size[at] = step_size;
        steps_since_draw_ = accepted_since_draw_ = 0;
    }

    void end_phase() {
        const std::int64_t at = index_ * std::ssize(shared_.config.warmup) + schedule_.phase_index();
        shared_.buffers.warmup_acceptance[at] = schedule_.phase_acceptance();
        schedule_.next_phase();
        shared_.buffers.warmup_step_size[at] = schedule_.step_size();
    }

    const RunShared<T>& shared_;
    Target target_;
    const std::int64_t index_;
    const PhiloxKey key_;
    Schedule schedule_;
    State<T> current_, proposed_;
    StepNoise<T> noise_;
    const std::int64_t total_steps_;
    std::int64_t step_ = 0;  // over warm-up and sampling: the step word of the noise's counter
    std::int64_t accepted_ = 0;
    std::int64_t draws_ = 0;
    std::int64_t nonfinite_ = 0;
    std::int64_t warmup_nonfinite_ = 0;
    std::int64_t steps_since_draw_ = 0;
    std::int64_t accepted_since_draw_ = 0;
    bool slow_ = false;
};

// Runs one chain for each row of buffers.init on its own target; make_target() builds one.
template <class T, class MakeTarget>
bool run_targets(const MakeTarget& make_target, std::int64_t dim, const RunConfig& config, const RunBuffers<T>& buffers,
                 const Monitor& monitor) {
    const RunShared<T> shared{config, buffers, PriorScale<T>(buffers.prior_variance, dim)};
    std::vector<std::unique_ptr<ChainTask>> chains;
    for (std::int64_t c = 0; c < config.chains; ++c)
        chains.push_back(std::make_unique<Chain<T, decltype(make_target())>>(make_target(), dim, shared, c));
    return run_chains(chains, config.total_steps() * config.chains, config.threads, monitor);
}

}  // namespace patrac::PATRAC_LEVEL
