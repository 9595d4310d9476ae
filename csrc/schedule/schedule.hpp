// The schedule of a run: which rule governs each step, and its step-size adaptation (docs/method.md, section 7).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/checkpoint.hpp"
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
    // dim: coordinates of the chain.
    Schedule(const RunConfig& config, std::int64_t dim) : config_(&config), dim_(dim) {
        progress_.step_size = config.step_size;
        enter_phase();
    }

    double step_size() const { return progress_.step_size; }
    bool sampling() const { return phase_ == std::ssize(config_->warmup); }
    std::int64_t phase_index() const { return phase_; }
    std::int64_t phase_steps() const { return progress_.steps; }
    const Phase& phase() const { return current_; }
    double free_from() const { return patrac::free_from(current_, dim_); }
    // a of the present phase.
    double persistence() const {
        return config_->persistence > 0.0 && current_.persistence > 0.0 ? current_.persistence : config_->persistence;
    }
    // Whether a phase that ends by travel may end. Steps without the accept test are not worth their while where the
    // step size at their beginning leads as far in a thousand steps.
    bool has_travelled() const {
        constexpr double few = 1000.0;
        return progress_.travelled >= current_.travel ||
               (current_.energy_error > 0.0 && few * first_step_size_ >= current_.travel);
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
        std::int64_t steps = current_.steps - progress_.steps;
        for (std::int64_t p = phase_ + 1; p < std::ssize(config_->warmup); ++p)
            steps += config_->warmup[static_cast<std::size_t>(p)].steps;
        return steps;
    }
    // Steps to the next event at the latest; sampling has none.
    std::int64_t steps_to_event() const {
        const std::int64_t end = phase().first_look > 0 ? std::min(next_look_, phase().steps) : phase().steps;
        return end - progress_.steps;
    }

    // Records one step with its log ratio, -infinity where that is not finite.
    Event record(bool accepted, double log_ratio, double log_likelihood) {
        if (progress_.record(current_, config_->adapt_window, accepted, log_ratio, log_likelihood)) {
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

    void exchange(Checkpoint& state) {
        std::int64_t steps = current_.steps;  // what phases before it left may have been added
        state.exchange(phase_, steps, first_step_size_, progress_, next_look_);
        state.exchange_vector(batches_);
        if (!state.reads()) return;
        // Results of a phase are written at its index, and it ends where its steps are equal to their number.
        if (phase_ < 0 || phase_ > std::ssize(config_->warmup)) Checkpoint::refuse();
        current_ = sampling() ? config_->sampling : config_->warmup[static_cast<std::size_t>(phase_)];
        current_.steps = steps;
        if (!sampling() && (progress_.steps < 0 || progress_.steps >= steps)) Checkpoint::refuse();
    }

    // log_step: that of all chains, if they share one.
    void next_phase(std::optional<double> log_step) {
        // The rate of one window is noisy, so the step size ends at its mean over many windows rather than at the last
        // value.
        if (!batches_.empty()) {
            if (phase().average && phase().adapt)
                progress_.step_size = std::exp(log_step ? *log_step : second_half(batches_).log_step);
        } else if (progress_.log_step_count > 0) {
            progress_.step_size = std::exp(progress_.log_step_sum / static_cast<double>(progress_.log_step_count));
        }
        // A warm-up of a given number of steps keeps it: what a phase that ends by travel has left goes to the next
        // one.
        const std::int64_t left = current_.travel > 0.0 ? current_.steps - progress_.steps : 0;
        ++phase_;
        enter_phase();
        if (!sampling() && current_.first_look == 0) current_.steps += left;
    }

private:
    void enter_phase() {
        while (!sampling() && config_->warmup[static_cast<std::size_t>(phase_)].steps == 0) ++phase_;
        current_ = sampling() ? config_->sampling : config_->warmup[static_cast<std::size_t>(phase_)];
        first_step_size_ = progress_.step_size;
        const double limit = current_.energy_error > 0.0 ? max_growth * progress_.step_size : config_->step_size_max;
        progress_ = {.step_size = progress_.step_size,
                     .step_size_max = std::min(limit, config_->step_size_max),
                     .squared_error = current_.energy_error * static_cast<double>(dim_)};
        batches_.clear();
        next_look_ = phase().first_look;
    }

    Event event() const {
        if (phase().first_look > 0 && (progress_.steps == next_look_ || phase_is_over())) return Event::look;
        return phase_is_over() ? Event::phase_end : Event::none;
    }

    const RunConfig* config_;
    std::int64_t dim_;
    Phase current_;
    double first_step_size_ = 0.0;  // of the phase
    PhaseProgress progress_;
    std::int64_t phase_ = 0;
    std::int64_t next_look_ = 0;
    std::vector<LogLikelihoodBatch> batches_;
};

}  // namespace patrac
