// One Markov chain: makes transitions, samples the noise variance and the scales of the prior, follows the warm-up, and
// writes the kept draws.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/chain/chain_prior.hpp"
#include "cpu/chain/concepts.hpp"
#include "cpu/chain/crank_nicolson.hpp"
#include "cpu/chain/elliptical_slice.hpp"
#include "cpu/chain/independent.hpp"
#include "cpu/chain/inverse_gamma.hpp"
#include "cpu/chain/noise.hpp"
#include "cpu/chain/state.hpp"
#include "schedule/chain_tasks.hpp"
#include "schedule/checkpoint.hpp"
#include "schedule/rendezvous.hpp"
#include "schedule/run_config.hpp"
#include "schedule/schedule.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T, Target<T> Sampled, Transition<T, Sampled> Kernel>
class Chain final : public ChainTask {
public:
    // config and buffers are shared by all chains of a run and outlive them. What a chain does once is compiled for
    // size: there are 48 kinds of chain.
    [[gnu::cold]] Chain(Sampled target, const RunConfig& config, const RunBuffers<T>& buffers, std::int64_t index)
        : config_(config),
          out_(buffers),
          target_(std::move(target)),
          index_(index),
          schedule_(config, target_.dim()),
          prior_(config.scales, buffers.prior_variance, target_.full_dim()),
          transition_(config.kernel, target_.prior_variance(prior_.variance()), target_.dim(), config.persistence,
                      buffers.step_factor),
          states_{{target_.dim(), target_.make_kept()}, {target_.dim(), target_.make_kept()}},
          noise_(stream_key(config.seed, static_cast<std::uint32_t>(index)), target_.dim()),
          output_noise_(noise_size<T>(1, std::max<std::int64_t>(1, target_.output_normals()))),
          full_theta_(target_.full_dim()),
          variance_(config.variance.initial),
          drawn_variance_(variance_.size()),
          squares_(variance_.size()) {
        std::copy_n(buffers.init + index * target_.full_dim(), target_.full_dim(), full_theta_.data());
        target_.place(full_theta_.data(), current());
        if (!config.states.empty()) {
            Checkpoint saved(config.states.at(static_cast<std::size_t>(index)));
            exchange(saved);
            saved.finish();
            return;
        }
        transition_.set_persistence(schedule_.persistence());
        transition_.set_step_size(schedule_.step_size());
        // As draw 0, so that a chain is a function of its starting point: those of the steps count from 1.
        if (config.scales.sampled()) draw_scales(0);
        if (config.variance.sampled()) target_.set_variance(current(), variance_, transition_.uses_gradient());
        if (is_mixture()) {  // the first precisions of the rows, as of the step before the first
            VarianceStreams streams(noise_.keys(), ~std::uint64_t{0});
            draw_from_rows(full_theta_.data(), streams);
        }
        if (!transition_.start(current(), target_, noise_.keys()))
            throw std::invalid_argument(
                "init: the log-likelihood or its gradient is not finite at the starting point "
                "of chain " +
                std::to_string(index) + "; start from another point" +
                (std::is_same_v<T, float> ? " or use dtype=\"float64\"" : ""));
    }

    bool finished() const override {
        return (schedule_.sampling() && draws_ == config_.draws) || (step_ >= config_.last_step && !waits_);
    }
    bool waits() const override { return waits_; }
    const Schedule& schedule() const override { return schedule_; }

    void resume() override {
        waits_ = false;
        if (schedule_.sampling()) return;
        schedule_.after_look();
        transition_.set_step_size(schedule_.step_size());
    }
    void end_phase(std::optional<double> log_step) override {
        waits_ = false;
        const std::int64_t phase = schedule_.phase_index(), at = index_ * std::ssize(config_.warmup) + phase;
        out_.warmup_acceptance[at] = schedule_.phase_acceptance();
        if (index_ == 0) out_.warmup_steps[phase] = schedule_.phase_steps();
        schedule_.next_phase(log_step);
        transition_.set_persistence(schedule_.persistence());
        transition_.set_step_size(schedule_.step_size());
        out_.warmup_step_size[at] = schedule_.step_size();
    }

    std::int64_t steps_left() const override {
        const std::int64_t left =
            schedule_.warmup_steps_left() + (config_.draws - draws_) * config_.thin - steps_since_draw_;
        return std::min(left, config_.last_step - step_);
    }

    // Between steps, where no chain waits. What a step computes anew and what follows from the numbers here is left
    // out: the proposed state, a completed draw, coefficients of a move, the noise.
    [[gnu::cold]] void exchange(Checkpoint& saved) override {
        saved.exchange(step_, accepted_, nonfinite_, warmup_nonfinite_, steps_since_draw_, accepted_since_draw_,
                       evaluated_since_draw_);
        if (step_ < 0 || steps_since_draw_ < 0 || steps_since_draw_ >= config_.thin) Checkpoint::refuse();
        schedule_.exchange(saved);
        prior_.exchange(saved);
        saved.exchange_array(variance_.data(), std::ssize(variance_));
        if constexpr (MixtureTarget<Sampled, T>) target_.exchange(saved);
        transition_.exchange(saved);
        if (!saved.reads()) return exchange_state(saved, current());
        Checkpoint once_more = saved;
        exchange_state(saved, current());
        follow_checkpoint();
        exchange_state(once_more, current());  // l and g may have been scaled from one variance to the next
        steps_done = step_;
        accepted = accepted_;
    }

    std::int64_t group_size(std::int64_t chains, std::int64_t threads) const override {
        if (together()) return (chains + threads - 1) / threads;
        return std::clamp<std::int64_t>(chains / threads, 1, Sampled::side_by_side);
    }

    void advance(std::span<ChainTask* const> group, double seconds, const std::atomic<bool>& stop) override {
        if (Rendezvous* const all = together())
            all->advance_together(std::ssize(group), [&](std::int64_t i) {
                static_cast<Chain*>(group[static_cast<std::size_t>(i)])
                    ->advance_in_turn(group.subspan(i, 1), seconds, stop);
            });
        else
            advance_in_turn(group, seconds, stop);
    }

private:
    // Whether the rows' precisions are part of the state.
    bool is_mixture() const { return MixtureTarget<Sampled, T> && target_.draws_by_row(); }

    // Brings transition and target to the scales, the variance and the step size that were read, and what the target
    // keeps with the point to the point.
    void follow_checkpoint() {
        transition_.set_persistence(schedule_.persistence());
        transition_.set_step_size(schedule_.step_size());
        if constexpr (FollowsPrior<Kernel, T, Sampled>) {
            if (config_.scales.sampled()) {
                transition_.set_prior_variance(target_.prior_variance(prior_.variance()));
                target_.set_prior_variance(current(), prior_.variance(), transition_.uses_gradient());
            }
        }
        if (config_.variance.sampled()) target_.set_variance(current(), variance_, transition_.uses_gradient());
        if constexpr (!std::is_same_v<typename Sampled::Kept, Nothing>)
            target_.evaluate(current(), transition_.uses_gradient());
    }

    // See Target::together().
    Rendezvous* together() const {
        if constexpr (requires { target_.together(); })
            return target_.together();
        else
            return nullptr;
    }

    void advance_in_turn(std::span<ChainTask* const> group, double seconds, const std::atomic<bool>& stop) {
        using Clock = std::chrono::steady_clock;
        auto last_look = Clock::now();
        const auto end = last_look + std::chrono::duration<double>(seconds);
        for (std::int64_t rounds = 1; !stop.load(std::memory_order_relaxed); ++rounds) {
            bool stepped = false;
            for (ChainTask* const task : group) stepped |= static_cast<Chain*>(task)->step_unless_done();
            if (!stepped) break;
            // Reading the clock costs about as much as a few hundred flops, so a small model reads it every 16 steps.
            if ((rounds & 15) == 0 || slow_) {
                const auto now = Clock::now();
                slow_ = (now - last_look) > std::chrono::milliseconds(1);
                last_look = now;
                if (now >= end) break;
            }
        }
        for (ChainTask* const task : group) static_cast<Chain*>(task)->publish();
    }

    bool step_unless_done() {
        if (finished() || waits_) return false;
        step();
        return true;
    }

    void publish() {
        steps_done.store(step_, std::memory_order_relaxed);
        accepted.store(accepted_, std::memory_order_relaxed);
        out_.draws_done[index_] = draws_;
        out_.nonfinite[index_] = nonfinite_;
        out_.warmup_nonfinite[index_] = warmup_nonfinite_;
    }

    StateOf<T, Sampled>& current() { return states_[at_]; }

    void step() {
        const bool sampling = schedule_.sampling();
        const Outcome outcome =
            transition_.step(current(), states_[1 - at_], target_, noise_, step_, schedule_.free_from());
        at_ ^= static_cast<unsigned>(outcome.moved);
        if (!outcome.finite) ++(sampling ? nonfinite_ : warmup_nonfinite_);
        bool complete = false;
        if (config_.variance.sampled() && (step_ + 1) % config_.variance.every == 0) {
            draw_variance();
            complete = target_.output_normals() > 0;
        }
        if (config_.scales.sampled() && (step_ + 1) % config_.scales.every == 0) {
            if (config_.scales.interweave) {
                move_scale(step_ + 1);
                complete = false;
            }
            if (!complete) complete_draw(step_);
            draw_scales(step_ + 1);
            complete = true;
        }
        ++step_;
        accepted_ += outcome.moved;
        if (sampling) {
            accepted_since_draw_ += outcome.moved;
            evaluated_since_draw_ += outcome.moved + outcome.rejections;
            if (++steps_since_draw_ == config_.thin) keep_draw(complete);
        }
        if (schedule_.compares()) find_log_likelihood();
        switch (schedule_.record(outcome.moved, outcome.log_ratio, current().log_likelihood)) {
            case Event::look: waits_ = true; break;
            case Event::phase_end: end_phase({}); break;
            case Event::none:
                if (schedule_.phase().adapt) transition_.set_step_size(schedule_.step_size());
        }
    }

    // Evaluates the state's log-likelihood where the transition does not compute it.
    void find_log_likelihood() {
        if constexpr (!Kernel::finds_log_likelihood) target_.evaluate(current(), false);
    }

    // Completes the state to a full draw: parameters that the chain integrates out are drawn at the given step.
    void complete_draw(std::int64_t step) {
        const std::int64_t normals = target_.output_normals();
        if (normals > 0)
            fill_steps(noise_.keys(), Purpose::output_weights, static_cast<std::uint64_t>(step), 1, normals,
                       output_noise_.data());
        full_log_likelihood_ = target_.complete(current(), output_noise_.data(), full_theta_.data());
    }

    // A Gibbs scan: theta has moved given the variance (collapsed: with the output weights integrated out); now come
    // the output weights given theta and the variance, then the variance given all of theta. In this order each step
    // leaves the posterior invariant.
    void draw_variance() {
        find_log_likelihood();
        // Where no output weights are integrated out, keep_draw() completes the draw.
        if (target_.output_normals() > 0)
            complete_draw(step_);
        else
            full_log_likelihood_ = current().log_likelihood;
        const T* const theta = target_.output_normals() > 0 ? full_theta_.data() : target_.theta_of(current());
        VarianceStreams streams(noise_.keys(), static_cast<std::uint64_t>(step_));
        double log_likelihood = 0.0;
        if (target_.draws_by_row())
            draw_from_rows(theta, streams);
        else
            log_likelihood = draw_from_squares(theta, streams);
        target_.set_variance(current(), drawn_variance_, transition_.uses_gradient());
        if (is_finite(current())) {
            full_log_likelihood_ = target_.draws_by_row() ? current().log_likelihood : log_likelihood;
            variance_ = drawn_variance_;
            return;
        }
        // The density that a chain samples is the posterior restricted to the points (theta, variance) at which l and
        // g, as they are computed, are finite: proposals of theta outside are rejected. The draw of the variance is
        // from the conditional of the posterior itself, a Metropolis proposal whose ratio is 1 inside and 0 outside,
        // so keeping the old variance leaves the restricted density invariant; where output weights are integrated
        // out too, since the restriction does not depend on them. l and g at the old variance are computed again: what
        // is not finite cannot be scaled back. Nor can zeros that no evaluation writes, g of a kernel without it and
        // what lies beyond its last entry: from an infinite variance they come back as NaN.
        if constexpr (MixtureTarget<Sampled, T>)
            if (is_mixture()) target_.restore_precisions();
        target_.set_variance(current(), variance_, transition_.uses_gradient());
        set_zero(current().gradient);
        target_.evaluate(current(), transition_.uses_gradient());
        ++(schedule_.sampling() ? nonfinite_ : warmup_nonfinite_);
    }

    // Draws the variances given the sums of squared residuals; returns l at them.
    double draw_from_squares(const T* theta, VarianceStreams& streams) {
        const GaussianTerms each{target_.terms().terms / static_cast<double>(variance_.size())};
        if (variance_.size() == 1)
            squares_.front() = each.sum_of_squares(full_log_likelihood_, variance_.front());
        else
            target_.sum_of_squares(current(), theta, squares_.data());
        double log_likelihood = 0.0;
        for (std::size_t c = 0; c < variance_.size(); ++c) {
            const double drawn = streams.values.next(config_.variance.shape + 0.5 * each.terms,
                                                     config_.variance.rate[c] + 0.5 * squares_[c]);
            log_likelihood += each.log_likelihood(squares_[c], drawn);
            drawn_variance_[c] = drawn;
        }
        return log_likelihood;
    }

    void draw_from_rows(const T* theta, VarianceStreams& streams) {
        if constexpr (requires { target_.draw_variances(theta, streams, 0.0, squares_.data(), drawn_variance_); })
            target_.draw_variances(theta, streams, config_.variance.shape, config_.variance.rate.data(),
                                   drawn_variance_);
    }

    // The last part of a Gibbs scan: the scales of the prior given all of theta, as the noise variance, which does not
    // depend on them. What holds the prior's variances follows; the momentum of a kernel that keeps one is whitened,
    // N(0, I) independently of theta and the scales, and stays.
    void draw_scales(std::int64_t draw) {
        if constexpr (FollowsPrior<Kernel, T, Sampled>) {
            const auto follow = [this] {
                transition_.set_prior_variance(target_.prior_variance(prior_.variance()));
                target_.set_prior_variance(current(), prior_.variance(), transition_.uses_gradient());
            };
            prior_.draw_scales(noise_.keys(), static_cast<std::uint64_t>(draw), full_theta_);
            follow();
            // As draw_variance(): a collapsed l may not be finite under the new prior.
            if (is_finite(current())) return;
            prior_.restore_scales();
            follow();
            ++(schedule_.sampling() ? nonfinite_ : warmup_nonfinite_);
        } else {
            throw std::invalid_argument("prior: a chain in a whitened basis does not sample the scales of its prior");
        }
    }

    // Moves a scale of the prior together with its parameters. The momentum of a kernel that keeps one stays, as in
    // draw_scales().
    void move_scale(std::int64_t draw) {
        if constexpr (FollowsPrior<Kernel, T, Sampled> && std::is_same_v<typename Sampled::Kept, Nothing>) {
            find_log_likelihood();
            StateOf<T, Sampled>& proposed = states_[1 - at_];
            NormalStream normal(noise_.keys(), Purpose::rescale_normal, static_cast<std::uint64_t>(draw));
            UniformStream uniform(noise_.keys(), Purpose::rescale_uniform, static_cast<std::uint64_t>(draw));
            const double prior_ratio = prior_.propose_rescaling(normal, uniform, current().theta, proposed.theta);
            target_.evaluate(proposed, transition_.uses_gradient());
            const double ratio = proposed.log_likelihood - current().log_likelihood + prior_ratio;
            const bool finite = std::isfinite(ratio) && all_finite(proposed.theta) && is_finite(proposed);
            if (!finite) ++(schedule_.sampling() ? nonfinite_ : warmup_nonfinite_);
            const double probability = finite ? std::min(1.0, std::exp(ratio)) : 0.0;
            const bool moved = uniform.next() < probability;
            prior_.end_rescaling(moved, probability, !schedule_.sampling());
            if (!moved) return;
            at_ ^= 1U;
            transition_.set_prior_variance(target_.prior_variance(prior_.variance()));
        } else {
            throw std::invalid_argument("prior: scales do not move together with weights that are integrated out");
        }
    }

    void keep_draw(bool complete) {
        const std::int64_t at = index_ * config_.draws + draws_++;
        if (!complete) {
            find_log_likelihood();
            complete_draw(step_ - 1);
        }
        if constexpr (MixtureTarget<Sampled, T>)
            if (is_mixture()) full_log_likelihood_ = target_.mixture_log_likelihood(full_theta_.data());
        const double prior = prior_.log_density(full_theta_);  // not finite where theta is not
        if (!std::isfinite(full_log_likelihood_ + prior))
            throw std::runtime_error("chain " + std::to_string(index_) + ": after step " + std::to_string(step_) +
                                     " theta or its log-likelihood is not finite" +
                                     (std::is_same_v<T, float> ? "; use dtype=\"float64\"" : ""));
        std::copy_n(full_theta_.data(), full_theta_.size(), out_.theta + at * full_theta_.size());
        out_.log_likelihood[at] = full_log_likelihood_;
        out_.log_prior[at] = prior;
        if (out_.variance) std::copy(variance_.begin(), variance_.end(), out_.variance + at * std::ssize(variance_));
        if (out_.prior_scales) std::ranges::copy(prior_.scales(), out_.prior_scales + at * std::ssize(prior_.scales()));
        out_.acceptance_rate[at] =
            static_cast<double>(accepted_since_draw_) / static_cast<double>(evaluated_since_draw_);
        out_.step_size[at] = schedule_.step_size();
        steps_since_draw_ = accepted_since_draw_ = evaluated_since_draw_ = 0;
        const std::int64_t every = config_.early_end.every;
        waits_ = every > 0 && draws_ % every == 0 && draws_ < config_.draws;
    }

    const RunConfig& config_;
    const RunBuffers<T>& out_;
    Sampled target_;
    const std::int64_t index_;
    Schedule schedule_;
    ChainPrior prior_;
    Kernel transition_;
    StateOf<T, Sampled> states_[2];  // the current state and the proposed one
    unsigned at_ = 0;                // index of the current one
    StepNoise<T> noise_;
    AlignedArray<T> output_noise_;
    AlignedArray<T> full_theta_;  // (full_dim,): the state completed to a draw
    double full_log_likelihood_ = 0.0;
    std::vector<double> variance_, drawn_variance_, squares_;  // (q,), of the noise, where it is sampled
    std::int64_t step_ = 0;  // over warm-up and sampling: the step word of the noise's counter
    std::int64_t accepted_ = 0;
    std::int64_t draws_ = 0;
    std::int64_t nonfinite_ = 0;
    std::int64_t warmup_nonfinite_ = 0;
    std::int64_t steps_since_draw_ = 0;
    std::int64_t accepted_since_draw_ = 0;
    std::int64_t evaluated_since_draw_ = 0;
    bool waits_ = false;
    bool slow_ = false;
};

// Runs one chain for each row of buffers.init on its own target; make_target() builds one.
template <class T, class Kernel, class MakeTarget>
bool run_transition(const MakeTarget& make_target, const RunConfig& config, const RunBuffers<T>& buffers,
                    const Monitor& monitor) {
    std::vector<std::unique_ptr<ChainTask>> chains;
    for (std::int64_t c = 0; c < config.chains; ++c)
        chains.push_back(
            std::make_unique<Chain<T, decltype(make_target()), Kernel>>(make_target(), config, buffers, c));
    const bool completed = run_schedule(chains, config, buffers.warmup_stable, monitor);
    if (completed && buffers.states)
        for (const auto& chain : chains) {
            Checkpoint state;
            chain->exchange(state);
            buffers.states->push_back(state.bytes());
        }
    return completed;
}

template <class T, class MakeTarget>
bool run_targets(const MakeTarget& make_target, const RunConfig& config, const RunBuffers<T>& buffers,
                 const Monitor& monitor) {
    switch (config.kernel) {
        case KernelKind::pcn:
        case KernelKind::pcnl:
        case KernelKind::mgrad: return run_transition<T, CrankNicolson<T>>(make_target, config, buffers, monitor);
        case KernelKind::elliptical_slice:
            return run_transition<T, EllipticalSlice<T>>(make_target, config, buffers, monitor);
        case KernelKind::exact: break;
    }
    throw std::invalid_argument("kernel: independent draws need a diagonal quadratic log-likelihood");
}

}  // namespace patrac::PATRAC_LEVEL
