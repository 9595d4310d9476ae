// What a chain records of each step of a phase: acceptance, step size and log-likelihood (docs/method.md, section 7).
#pragma once

#include <cmath>
#include <cstdint>

#include "shared/host_device.hpp"

namespace patrac {

// One phase of the warm-up: `steps` transitions under one acceptance rule (docs/method.md, section 7).
struct Phase {
    std::int64_t steps = 0;
    bool adapt = false;
    double accept_low = 0.0;   // halve the step size at or below
    double accept_high = 1.0;  // multiply it by 4/3 at or above
    bool accept_all = false;   // accept every finite proposal
    double energy_error =
        0.0;                   // where positive, approach this squared log ratio per dimension instead, with target 1/2
    double persistence = 0.0;  // where positive, that of a kernel whose noise persists, in place of its own
    // Where positive, the phase ends at the first look at which the step sizes of each chain's accepted moves add up to
    // this; the chains are not compared.
    double travel = 0.0;
    bool average = false;  // end with the geometric mean of the step sizes of the phase's second half
    double target = 0.0;   // where positive, approach this acceptance probability and not a band
    // Where positive, the chains are compared after this many steps, twice as many and so on, and the phase ends when
    // they are stable.
    std::int64_t first_look = 0;
    // Where positive, the chains are that many superchains, each of consecutive chains that began at one point, and are
    // compared as such. Where they agree and the phase averages, all go on with one step size. A divisor of the number
    // of chains, at most half of it.
    std::int64_t superchains = 0;
};

// Moments of the log-likelihood over consecutive steps of one chain.
struct LogLikelihoodBatch {
    std::int64_t count = 0;
    double mean = 0.0;
    double squares = 0.0;   // sum of squared distances from the mean
    double log_step = 0.0;  // mean

    // Welford's update.
    PATRAC_HOST_DEVICE void add(double log_likelihood, double log_step_size) {
        ++count;
        const double n = static_cast<double>(count), away = log_likelihood - mean;
        mean += away / n;
        squares += away * (log_likelihood - mean);
        log_step += (log_step_size - log_step) / n;
    }
    // Chan, Golub & LeVeque (1979).
    PATRAC_HOST_DEVICE void add(const LogLikelihoodBatch& other) {
        if (other.count == 0) return;
        const double a = static_cast<double>(count), b = static_cast<double>(other.count), away = other.mean - mean;
        count += other.count;
        squares += other.squares + away * away * a * b / (a + b);
        mean += away * b / (a + b);
        log_step += (other.log_step - log_step) * b / (a + b);
    }
};

// Batches up to the first look.
inline constexpr std::int64_t batches_to_first_look = 8;
// Steps whose mean acceptance probability moves the step size once, in phases with a target.
inline constexpr std::int64_t target_window = 10;
// Without the accept test a chain that is thrown far from the posterior may find smaller errors there, at which the
// step size would grow further. So it stays below this multiple of the step size at which the phase began.
inline constexpr double max_growth = 16.0;

// The log ratio from which a finite proposal is accepted without the accept test: infinite where every step has one.
// A move that is off by a hundred times the error that a phase approaches is the beginning of an overflow: such a chain
// would be thrown to where the gradient is astronomic and would not return.
PATRAC_HOST_DEVICE inline double free_from(const Phase& phase, std::int64_t dim) {
    if (!phase.accept_all) return __builtin_inf();
    return phase.energy_error > 0.0 ? -100.0 * std::sqrt(phase.energy_error * static_cast<double>(dim))
                                    : -__builtin_inf();
}

// Copied as it is between host and device.
struct PhaseProgress {
    double step_size = 0.0;
    double step_size_max = 0.0;  // of the phase
    double squared_error = 0.0;  // of the log ratio, in phases that approach one
    std::int64_t steps = 0, accepted = 0;
    double travelled = 0.0;  // sum of the step sizes of accepted moves, in phases that end by it
    std::int64_t window_steps = 0, window_accepted = 0;
    double window_probability = 0.0;
    std::int64_t updates = 0;
    double log_step_sum = 0.0;
    std::int64_t log_step_count = 0;
    LogLikelihoodBatch batch = {};  // under way, in phases that may end early

    // Records one step with its log ratio, -infinity where that is not finite. True if `batch` is full: the caller
    // stores it and empties it.
    PATRAC_HOST_DEVICE bool record(const Phase& phase, std::int64_t adapt_window, bool step_accepted, double log_ratio,
                                   double log_likelihood) {
        ++steps;
        accepted += step_accepted;
        window_accepted += step_accepted;
        if (phase.travel > 0.0 && step_accepted) travelled += step_size;
        // The share e/(e + r^2) of a squared error r^2 at the scale e lies in (0, 1), as a probability, and is 1/2 at
        // e: one huge error counts no more than any error that is too large.
        if (phase.adapt)
            window_probability += squared_error > 0.0 ? squared_error / (squared_error + log_ratio * log_ratio)
                                                      : std::exp(std::fmin(0.0, log_ratio));
        if (++window_steps == (phase.target > 0.0 ? target_window : adapt_window)) {
            if (phase.adapt) {
                if (phase.target > 0.0)
                    approach_target(phase.target);
                else
                    stay_in_band(phase);
            }
            if (phase.average && 2 * steps > phase.steps) {
                log_step_sum += std::log(step_size);
                ++log_step_count;
            }
            window_steps = window_accepted = 0;
            window_probability = 0.0;
        }
        if (phase.first_look <= 0) return false;
        batch.add(log_likelihood, phase.adapt ? std::log(step_size) : 0.0);
        return batch.count == phase.first_look / batches_to_first_look;
    }

private:
    PATRAC_HOST_DEVICE void stay_in_band(const Phase& phase) {
        const double rate = static_cast<double>(window_accepted) / static_cast<double>(window_steps);
        if (rate <= phase.accept_low)
            step_size /= 2.0;
        else if (rate >= phase.accept_high)
            step_size = std::fmin(step_size * 4.0 / 3.0, step_size_max);
    }

    // Stochastic approximation (Robbins & Monro 1951) of the step size whose mean acceptance probability is the target.
    // The gain starts at one, which corrects a step size wrong by 1e4 in some 300 steps, and falls as k^-0.6.
    PATRAC_HOST_DEVICE void approach_target(double target) {
        const double rate = window_probability / static_cast<double>(window_steps);
        const double gain = std::pow(1.0 + static_cast<double>(updates++) / 20.0, -0.6);
        step_size = std::fmin(step_size * std::exp(gain * (rate - target)), step_size_max);
    }
};

}  // namespace patrac
