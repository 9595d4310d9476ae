// The schedule of a run: which rule governs each step, and its step-size adaptation (docs/method.md, section 7).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "../patrac.hpp"
#include "stability.hpp"

namespace patrac {

enum class Event : std::uint8_t {
    none,
    look,       // all chains wait here to be compared: the phase ends if they agree
    phase_end,  // call next_phase()
};

// Walks the warm-up phases, then sampling. The step size changes only at the end of an adaptation window or phase.
class Schedule {
public:
    explicit Schedule(const RunConfig& config) : config_(&config), step_size_(config.step_size) { enter_phase(); }

    double step_size() const { return step_size_; }
    bool sampling() const { return phase_ == std::ssize(config_->warmup); }
    std::int64_t phase_index() const { return phase_; }
    std::int64_t phase_steps() const { return phase_steps_; }
    const Phase& phase() const {
        return sampling() ? config_->sampling : config_->warmup[static_cast<std::size_t>(phase_)];
    }
    bool phase_is_over() const { return !sampling() && phase_steps_ == phase().steps; }

    // Acceptance rate of the current phase so far.
    double phase_acceptance() const {
        return phase_steps_ ? static_cast<double>(phase_accepted_) / static_cast<double>(phase_steps_) : 0.0;
    }
    // Of a phase that may end early.
    const std::vector<Block>& blocks() const { return blocks_; }

    // Steps of warm-up that are left if no phase ends early.
    std::int64_t warmup_steps_left() const {
        if (sampling()) return 0;
        std::int64_t steps = -phase_steps_;
        for (std::int64_t p = phase_; p < std::ssize(config_->warmup); ++p)
            steps += config_->warmup[static_cast<std::size_t>(p)].steps;
        return steps;
    }

    // Books one step with its acceptance probability.
    Event record(bool accepted, double probability, double log_likelihood) {
        const Phase& now = phase();
        ++phase_steps_;
        phase_accepted_ += accepted;
        window_accepted_ += accepted;
        window_probability_ += probability;
        if (++window_steps_ == (now.target > 0.0 ? target_window : config_->adapt_window)) {
            if (now.adapt) now.target > 0.0 ? approach_target() : stay_in_band();
            if (now.average && 2 * phase_steps_ > now.steps) {
                log_step_sum_ += std::log(step_size_);
                ++log_step_count_;
            }
            window_steps_ = window_accepted_ = 0;
            window_probability_ = 0.0;
        }
        if (now.first_look > 0) {
            block_.add(log_likelihood, now.adapt ? std::log(step_size_) : 0.0);
            if (block_.count == now.first_look / blocks_to_first_look) {
                blocks_.push_back(block_);
                block_ = {};
            }
            if (phase_steps_ == next_look_ || phase_is_over()) return Event::look;
        }
        return phase_is_over() ? Event::phase_end : Event::none;
    }

    void after_look() { next_look_ *= 2; }

    void next_phase() {
        // One window's rate is a noisy look; the mean over many is a better place to stop than wherever the last one
        // led.
        if (!blocks_.empty()) {
            if (phase().average && phase().adapt) step_size_ = std::exp(second_half(blocks_).log_step);
        } else if (log_step_count_ > 0) {
            step_size_ = std::exp(log_step_sum_ / static_cast<double>(log_step_count_));
        }
        ++phase_;
        enter_phase();
    }

private:
    // Steps whose mean acceptance probability moves the step size once, in phases with a target.
    static constexpr std::int64_t target_window = 10;

    void enter_phase() {
        while (!sampling() && phase().steps == 0) ++phase_;
        phase_steps_ = phase_accepted_ = window_steps_ = window_accepted_ = updates_ = log_step_count_ = 0;
        window_probability_ = log_step_sum_ = 0.0;
        blocks_.clear();
        block_ = {};
        next_look_ = phase().first_look;
    }

    void stay_in_band() {
        const double rate = static_cast<double>(window_accepted_) / static_cast<double>(window_steps_);
        if (rate <= phase().accept_low)
            step_size_ /= 2.0;
        else if (rate >= phase().accept_high)
            step_size_ = std::min(step_size_ * 4.0 / 3.0, config_->step_size_max);
    }

    // Stochastic approximation (Robbins & Monro 1951) of the step size whose mean acceptance probability is the target.
    // The gain starts at one, where a step size wrong by 1e4 is mended in some 300 steps, and falls as k^-0.6.
    void approach_target() {
        const double rate = window_probability_ / static_cast<double>(window_steps_);
        const double gain = std::pow(1.0 + static_cast<double>(updates_++) / 20.0, -0.6);
        step_size_ = std::min(step_size_ * std::exp(gain * (rate - phase().target)), config_->step_size_max);
    }

    const RunConfig* config_;
    double step_size_;
    std::int64_t phase_ = 0;
    std::int64_t phase_steps_ = 0, phase_accepted_ = 0;
    std::int64_t window_steps_ = 0, window_accepted_ = 0;
    double window_probability_ = 0.0;
    std::int64_t updates_ = 0;
    double log_step_sum_ = 0.0;
    std::int64_t log_step_count_ = 0;
    std::int64_t next_look_ = 0;
    Block block_;
    std::vector<Block> blocks_;
};

}  // namespace patrac
