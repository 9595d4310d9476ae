// One Markov chain: pCN and pCNL transitions, warm-up, thinning, and where the kept draws go.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "../cpu/noise.hpp"
#include "../cpu/target.hpp"
#include "../cpu/wide.hpp"
#include "../shared/kernels.hpp"
#include "schedule.hpp"
#include "threads.hpp"

namespace patrac::PATRAC_LEVEL {

// C^(1/2) of the prior N(0, C), C diagonal.
template <class T>
AlignedArray<T> prior_deviation(const double* prior_variance, std::int64_t dim) {
    AlignedArray<T> deviation(dim);
    for (std::int64_t i = 0; i < dim; ++i) deviation[i] = static_cast<T>(std::sqrt(prior_variance[i]));
    return deviation;
}

// The sums below are in float64 over whole vectors: the arrays end in zeros (AlignedArray).

// False if an entry is infinite or NaN. An infinite weight into a saturated activation leaves l and g finite, so they
// do not show it.
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
};

inline bool uses_gradient(KernelKind kernel) {
    return kernel == KernelKind::pcnl;
}

// A move u -> v of either kernel: v is evaluated, and the log of pi(v) q(v, u) / (pi(u) q(u, v)) found.
template <class T>
class Move {
public:
    // g(v) was taken if and only if the kernel uses it. Sets v's g_dot_cg.
    Move(const State<T>& u, State<T>& v, const AlignedArray<T>& prior_deviation, KernelKind kernel)
        : kernel_(kernel), change_{v.log_likelihood - u.log_likelihood, 0.0, 0.0, 0.0} {
        if (!uses_gradient(kernel)) {
            finite_ = std::isfinite(v.log_likelihood) && all_finite(v.theta);
            return;
        }
        using D = Vec<double>;
        D difference_dot_sum = {}, sum_dot_difference = {}, g_dot_cg = {};
        for (std::int64_t i = 0; i < u.theta.size(); i += lanes_v<D>) {
            const D from = load_wide(u.theta.data() + i), to = load_wide(v.theta.data() + i);
            const D at_from = load_wide(u.gradient.data() + i), at_to = load_wide(v.gradient.data() + i);
            difference_dot_sum = fma(to - from, at_to + at_from, difference_dot_sum);
            sum_dot_difference = fma(to + from, at_to - at_from, sum_dot_difference);
            const D scaled = load_wide(prior_deviation.data() + i) * at_to;
            g_dot_cg = fma(scaled, scaled, g_dot_cg);
        }
        v.g_dot_cg = reduce_add(g_dot_cg);
        change_.difference_dot_sum = reduce_add(difference_dot_sum);
        change_.sum_dot_difference = reduce_add(sum_dot_difference);
        change_.g_dot_cg_difference = v.g_dot_cg - u.g_dot_cg;
        // An entry of v or g(v) that is not finite leaves its mark in a sum: infinity, or NaN from infinity times zero.
        // So do, in float64, products too large for the ratio to be computed.
        finite_ = std::isfinite(v.log_likelihood) && std::isfinite(v.g_dot_cg) &&
                  std::isfinite(change_.difference_dot_sum) && std::isfinite(change_.sum_dot_difference);
    }

    bool finite() const { return finite_; }
    double log_acceptance(double step_size) const {
        return uses_gradient(kernel_) ? pcnl_log_acceptance(change_, step_size) : change_.log_likelihood_difference;
    }

private:
    KernelKind kernel_;
    bool finite_;
    PcnlMove change_;
};

// l and, where the kernel uses it, g at the state's theta.
template <class T, class Target>
void evaluate(State<T>& state, Target& target, KernelKind kernel) {
    state.log_likelihood = target.evaluate(state.theta, uses_gradient(kernel) ? &state.gradient : nullptr);
}

// What all chains of a run share, read only.
template <class T>
struct RunShared {
    const RunConfig& config;
    const RunBuffers<T>& buffers;
    const AlignedArray<T> prior_deviation;
};

template <class T, class Target>
class Chain final : public ChainTask {
public:
    Chain(Target target, std::int64_t dim, const RunShared<T>& shared, std::int64_t index)
        : shared_(shared),
          target_(std::move(target)),
          index_(index),
          schedule_(shared.config),
          current_(dim),
          proposed_(dim),
          noise_(stream_key(shared.config.seed, static_cast<std::uint32_t>(index)), dim),
          total_steps_(shared.config.total_steps()) {
        std::copy_n(shared.buffers.init + index * dim, dim, current_.theta.data());
        evaluate(current_, target_, shared.config.kernel);
        // The move from a point to itself has all that is to be known of the point.
        if (!Move<T>(current_, current_, shared.prior_deviation, shared.config.kernel).finite())
            throw std::invalid_argument(
                "init: the log-likelihood or its gradient is not finite at the starting point "
                "of chain " +
                std::to_string(index) + "; start from another point" +
                (std::is_same_v<T, float> ? " or use dtype=\"float64\"" : ""));
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
    // v = u + (drift C g(u) + noise C^(1/2) w - shrink u), w standard normal.
    void propose(const Proposal& by) {
        using V = Vec<T>;
        const V shrink = broadcast<V>(static_cast<T>(by.shrink)), drift = broadcast<V>(static_cast<T>(by.drift)),
                noise = broadcast<V>(static_cast<T>(by.noise));
        const T* const w = noise_.normals(step_);
        // Whole vectors: beyond K the deviation is zero, so v stays zero there whatever the noise is.
        for (std::int64_t i = 0; i < proposed_.theta.size(); i += lanes_v<V>) {
            const V u = load<V>(current_.theta.data() + i), g = load<V>(current_.gradient.data() + i);
            const V deviation = load<V>(shared_.prior_deviation.data() + i);
            const V move = deviation * (drift * (deviation * g) + noise * load<V>(w + i)) - shrink * u;
            store<V>(proposed_.theta.data() + i, u + move);
        }
    }

    bool accept(double step_size) {
        const KernelKind kernel = shared_.config.kernel;
        evaluate(proposed_, target_, kernel);
        const Move<T> move(current_, proposed_, shared_.prior_deviation, kernel);
        if (!move.finite()) {
            ++(schedule_.sampling() ? nonfinite_ : warmup_nonfinite_);
            return false;
        }
        if (schedule_.phase().accept_all) return true;
        const double log_ratio = move.log_acceptance(step_size);
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
    const RunShared<T> shared{config, buffers, prior_deviation<T>(buffers.prior_variance, dim)};
    std::vector<std::unique_ptr<ChainTask>> chains;
    for (std::int64_t c = 0; c < config.chains; ++c)
        chains.push_back(std::make_unique<Chain<T, decltype(make_target())>>(make_target(), dim, shared, c));
    return run_chains(chains, config.total_steps() * config.chains, config.threads, monitor);
}

}  // namespace patrac::PATRAC_LEVEL
