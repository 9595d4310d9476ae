// The scheduler that keeps all chains of a run at nearly the same step.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "schedule/checkpoint.hpp"
#include "schedule/run_config.hpp"
#include "schedule/schedule.hpp"

namespace patrac {

// A chain as the scheduler sees it.
class ChainTask {
public:
    virtual ~ChainTask() = default;
    // Number of chains, at least 1, that a thread should advance together where `threads` share `chains`: several where
    // a step is a few dependent operations, so that the processor overlaps those of different chains, and all where
    // chains wait for each other.
    virtual std::int64_t group_size(std::int64_t chains, std::int64_t threads) const = 0;
    // Steps the chains of `group`, this one and others of its run, until about `seconds` have passed, all are
    // finished or wait, or `stop` is set.
    virtual void advance(std::span<ChainTask* const> group, double seconds, const std::atomic<bool>& stop) = 0;
    virtual bool finished() const = 0;
    virtual bool waits() const = 0;  // for the other chains: at a comparison of the warm-up, or where the run may end
    virtual void resume() = 0;
    // Instead of resume(), where the phase of the warm-up ends: see Schedule::next_phase().
    virtual void end_phase(std::optional<double> log_step) = 0;
    virtual const Schedule& schedule() const = 0;
    virtual std::int64_t steps_left() const = 0;  // if no phase ends early
    virtual void exchange(Checkpoint& state) = 0;

    // Read by the monitor while the chain runs.
    std::atomic<std::int64_t> steps_done{0};
    std::atomic<std::int64_t> accepted{0};
};

using ChainTasks = std::vector<std::unique_ptr<ChainTask>>;

// Runs all chains to their end on worker threads while this thread polls the monitor. Slices go to the chains that are
// furthest behind, so an interrupted run has chains of nearly equal length; slicing never changes a chain's numbers.
// Chains wait for each other at intervals in a phase that may end early; where they are compared, warmup_stable (P,)
// gets 1 if it ended early, else 0. Returns false when the monitor stopped the run.
bool run_schedule(const ChainTasks& chains, const RunConfig& config, std::int64_t* warmup_stable,
                  const Monitor& monitor);

}  // namespace patrac
