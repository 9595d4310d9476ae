// The schedule of a run: which rule governs each step, and its step-size adaptation (docs/method.md, section 7).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../patrac.hpp"

namespace patrac {

// Walks the warm-up phases, then sampling. The step size changes only at the end of an adaptation window or phase.
class Schedule {
public:
    explicit Schedule(const RunConfig& config) : config_(&config), step_size_(config.step_size) { skip_empty_phases(); }

    double step_size() const { return step_size_; }
    bool sampling() const { return phase_ == std::ssize(config_->warmup); }
    std::int64_t phase_index() const { return phase_; }
    const Phase& phase() const {
        return sampling() ? config_->sampling : config_->warmup[static_cast<std::size_t>(phase_)];
    }

    // Acceptance rate of the current phase so far.
    double phase_acceptance() const {
        return phase_steps_ ? static_cast<double>(phase_accepted_) / static_cast<double>(phase_steps_) : 0.0;
    }

    // Books one step. Returns true when it was the last of a warm-up phase; call next_phase() then.
    bool record(bool accepted) {
        ++phase_steps_;
        phase_accepted_ += accepted;
        window_accepted_ += accepted;
        if (++window_steps_ == config_->adapt_window) {
            if (phase().adapt) adapt();
            if (phase().average && 2 * phase_steps_ > phase().steps) {
                log_step_sum_ += std::log(step_size_);
                ++log_step_count_;
            }
            window_steps_ = window_accepted_ = 0;
        }
        return !sampling() && phase_steps_ == phase().steps;
    }

    void next_phase() {
        // One window's rate is a noisy look; the mean over many is a better place to stop than wherever the last one
        // led.
        if (log_step_count_ > 0) step_size_ = std::exp(log_step_sum_ / static_cast<double>(log_step_count_));
        log_step_sum_ = 0.0;
        log_step_count_ = 0;
        ++phase_;
        phase_steps_ = phase_accepted_ = window_steps_ = window_accepted_ = 0;
        skip_empty_phases();
    }

private:
    void skip_empty_phases() {
        while (!sampling() && phase().steps == 0) ++phase_;
    }

    void adapt() {
        const double rate = static_cast<double>(window_accepted_) / static_cast<double>(window_steps_);
        if (rate <= phase().accept_low)
            step_size_ /= 2.0;
        else if (rate >= phase().accept_high)
            step_size_ = std::min(step_size_ * 4.0 / 3.0, config_->step_size_max);
    }

    const RunConfig* config_;
    double step_size_;
    std::int64_t phase_ = 0;
    std::int64_t phase_steps_ = 0;
    std::int64_t phase_accepted_ = 0;
    std::int64_t window_steps_ = 0;
    std::int64_t window_accepted_ = 0;
    double log_step_sum_ = 0.0;
    std::int64_t log_step_count_ = 0;
};

}  // namespace patrac
