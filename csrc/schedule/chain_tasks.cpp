// The chain scheduler.
#include "schedule/chain_tasks.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "schedule/stability.hpp"
#include "schedule/thread_pool.hpp"

namespace patrac {
namespace {

// Runs all chains until each is finished or waits. Returns false when the monitor stopped the run.
bool run_chains(const ChainTasks& chains, std::int64_t threads, const Monitor& monitor) {
    constexpr double slice_seconds = 0.01;
    constexpr auto poll_every = std::chrono::milliseconds(50);

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<ChainTask*> waiting;
    for (const auto& chain : chains)
        if (!chain->finished() && !chain->waits()) waiting.push_back(chain.get());
    const auto workers = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(1, std::ssize(waiting)));
    std::int64_t active = workers;
    std::atomic<bool> stop{false};
    FirstError error;

    const std::int64_t together = waiting.empty() ? 1 : waiting.front()->group_size(std::ssize(waiting), workers);

    // At most one worker for each unfinished chain: a worker that finds no waiting chain returns.
    const auto work = [&] {
        std::unique_lock lock(mutex);
        try {
            std::vector<ChainTask*> group;
            while (!stop && !waiting.empty()) {
                const auto end = waiting.begin() + std::min(together, std::ssize(waiting));
                std::partial_sort(waiting.begin(), end, waiting.end(),
                                  [](auto* a, auto* b) { return a->steps_done.load() < b->steps_done.load(); });
                group.assign(waiting.begin(), end);
                waiting.erase(waiting.begin(), end);
                lock.unlock();
                group.front()->advance(group, slice_seconds, stop);
                lock.lock();
                for (ChainTask* const chain : group)
                    if (!chain->finished() && !chain->waits()) waiting.push_back(chain);
            }
        } catch (...) {
            error.capture();
            stop = true;
        }
        if (!lock) lock.lock();
        --active;
        changed.notify_all();
    };

    std::int64_t steps_total = 0;
    for (const auto& chain : chains) steps_total += chain->steps_done.load() + chain->steps_left();

    const auto progress = [&] {
        Progress now;
        now.steps_total = steps_total;
        std::int64_t accepted = 0;
        for (const auto& chain : chains) {
            now.steps_done += chain->steps_done.load(std::memory_order_relaxed);
            accepted += chain->accepted.load(std::memory_order_relaxed);
        }
        if (now.steps_done > 0)
            now.acceptance_rate = static_cast<double>(accepted) / static_cast<double>(now.steps_done);
        return now;
    };

    bool completed = true;
    Pool pool;
    try {
        for (std::int64_t worker = 0; worker < workers; ++worker) {
            try {
                if (pool.start(work, true)) continue;
            } catch (const std::system_error& failure) {
                throw std::runtime_error("a run needs a thread beside its caller's, and the system starts none (" +
                                         std::string(failure.what()) + "); threads = " + std::to_string(workers) +
                                         " were asked for. Raise the limit on threads (ulimit -u), or end others.");
            }
            // Fewer workers than asked for give the same draws.
            const std::lock_guard lock(mutex);
            active -= workers - worker;
            break;
        }
        std::unique_lock lock(mutex);
        while (!changed.wait_for(lock, poll_every, [&] { return active == 0; })) {
            lock.unlock();
            // The monitor is called even after a stop, so that it consumes a second Ctrl-C.
            completed = monitor(progress()) && completed;
            if (!completed) stop = true;
            lock.lock();
        }
    } catch (...) {
        stop = true;
        throw;
    }
    pool.join();
    // Reports the final progress and checks for Ctrl-C once more.
    monitor(progress());
    error.rethrow();
    return completed;
}

}  // namespace

bool run_schedule(const ChainTasks& chains, const RunConfig& config, std::int64_t* warmup_stable,
                  const Monitor& monitor) {
    if (config.coarse_gradient)
        throw std::invalid_argument(
            "kernel: the CPU has no coarse gradient; use device=\"cuda\" or gradient=\"exact\"");
    while (run_chains(chains, config.threads, monitor)) {
        if (chains.empty() || chains.front()->finished()) return true;
        // All wait at the same step.
        if (chains.front()->schedule().sampling()) {
            if (config.early_end.is_enough()) return true;
            for (const auto& chain : chains) chain->resume();
            continue;
        }
        const Schedule& first = chains.front()->schedule();
        const std::int64_t superchains = first.phase().superchains;
        bool end = first.phase_is_over();
        std::optional<double> log_step;
        if (first.phase().travel > 0.0) {
            end = end || std::ranges::all_of(chains, [](const auto& c) { return c->schedule().has_travelled(); });
        } else {
            BatchesOfChains batches;
            for (const auto& chain : chains) batches.push_back(&chain->schedule().batches());
            const bool stable = is_stable(batches, superchains);
            end = end || stable;
            if (end) warmup_stable[first.phase_index()] = stable;
            if (stable && superchains > 0) log_step = shared_log_step(batches);
        }
        for (const auto& chain : chains) end ? chain->end_phase(log_step) : chain->resume();
    }
    return false;
}

}  // namespace patrac
