// The schedule of a run: which rule governs each step, and its step-size adaptation (docs/method.md, section 7).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/run_config.hpp"
#include "schedule/stability.hpp"
#include "shared/adaptation.hpp"

namespace patrac {

enum class Event : std::uint8_t {
    none,
    look,       // all chains wait here and are compared: the phase ends if they agree
    phase_end,  // call next_phase()
};

// Walks the warm-up phases, then sampling. The step size changes only at the end of an adaptation window or phase.
class Schedule {
public:
    explicit Schedule(const RunConfig& config) : config_(&config) {
        progress_.step_size = config.step_size;
        enter_phase();
    }

    double step_size() const { return progress_.step_size; }
    bool sampling() const { return phase_ == std::ssize(config_->warmup); }
    std::int64_t phase_index() const { return phase_; }
    std::int64_t phase_steps() const { return progress_.steps; }
    const Phase& phase() const {
        return sampling() ? config_->sampling : config_->warmup[static_cast<std::size_t>(phase_)];
    }
    // Whether record() uses the log-likelihood.
    bool compares() const { return phase().first_look > 0; }
    bool phase_is_over() const { return !sampling() && progress_.steps == phase().steps; }

    // Acceptance rate of the current phase so far.
    double phase_acceptance() const {
        return progress_.steps ? static_cast<double>(progress_.accepted) / static_cast<double>(progress_.steps) : 0.0;
    }
    // Of a phase that may end early.
    const std::vector<LogLikelihoodBatch>& batches() const { return batches_; }

    // Steps of warm-up that are left if no phase ends early.
    std::int64_t warmup_steps_left() const {
        if (sampling()) return 0;
        std::int64_t steps = -progress_.steps;
        for (std::int64_t p = phase_; p < std::ssize(config_->warmup); ++p)
            steps += config_->warmup[static_cast<std::size_t>(p)].steps;
        return steps;
    }
    // Steps to the next event at the latest; sampling has none.
    std::int64_t steps_to_event() const {
        const std::int64_t end = phase().first_look > 0 ? std::min(next_look_, phase().steps) : phase().steps;
        return end - progress_.steps;
    }

    // Records one step with the logarithm of its acceptance probability, capped later at 0.
    Event record(bool accepted, double log_acceptance, double log_likelihood) {
        if (progress_.record(phase(), config_->adapt_window, config_->step_size_max, accepted, log_acceptance,
                             log_likelihood)) {
            batches_.push_back(progress_.batch);
            progress_.batch = {};
        }
        return event();
    }

    // What a device records itself: its progress, and the batches of the present phase.
    const PhaseProgress& progress() const { return progress_; }
    Event take_over(const PhaseProgress& progress, std::vector<LogLikelihoodBatch> batches) {
        progress_ = progress;
        batches_ = std::move(batches);
        return event();
    }

    void after_look() { next_look_ *= 2; }

    void next_phase() {
        // The rate of one window is noisy, so the step size ends at its mean over many windows rather than at the last
        // value.
        if (!batches_.empty()) {
            if (phase().average && phase().adapt) progress_.step_size = std::exp(second_half(batches_).log_step);
        } else if (progress_.log_step_count > 0) {
            progress_.step_size = std::exp(progress_.log_step_sum / static_cast<double>(progress_.log_step_count));
        }
        ++phase_;
        enter_phase();
    }

private:
    void enter_phase() {
        while (!sampling() && phase().steps == 0) ++phase_;
        progress_ = {.step_size = progress_.step_size};
        batches_.clear();
        next_look_ = phase().first_look;
    }

    Event event() const {
        if (phase().first_look > 0 && (progress_.steps == next_look_ || phase_is_over())) return Event::look;
        return phase_is_over() ? Event::phase_end : Event::none;
    }

    const RunConfig* config_;
    PhaseProgress progress_;
    std::int64_t phase_ = 0;
    std::int64_t next_look_ = 0;
    std::vector<LogLikelihoodBatch> batches_;
};

}  // namespace patrac
