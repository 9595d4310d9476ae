// Native threads: a parallel loop, and the scheduler that keeps all chains of a run at the same step.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "../patrac.hpp"

namespace patrac {

// Calls body(index, worker) for index 0..count-1 on at most `threads` threads; the first exception is rethrown here.
void parallel_for(std::int64_t count, std::int64_t threads,
                  const std::function<void(std::int64_t index, std::int64_t worker)>& body);

// A chain as the scheduler sees it.
class ChainTask {
public:
    virtual ~ChainTask() = default;
    // Runs steps until about `seconds` have passed, the chain is finished or `stop` is set.
    virtual void advance(double seconds, const std::atomic<bool>& stop) = 0;
    virtual bool finished() const = 0;

    // Read by the monitor while the chain runs.
    std::atomic<std::int64_t> steps_done{0};
    std::atomic<std::int64_t> accepted{0};
};

// Runs all chains to their end on worker threads while this thread polls the monitor. Slices go to the chain that is
// furthest behind, so an interrupted run has chains of nearly equal length; slicing never changes a chain's numbers.
// Returns false when the monitor stopped the run.
bool run_chains(const std::vector<std::unique_ptr<ChainTask>>& chains, std::int64_t steps_total, std::int64_t threads,
                const Monitor& monitor);

}  // namespace patrac
