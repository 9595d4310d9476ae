// The parallel loop and the chain scheduler.
#include "threads.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace patrac {
namespace {

// Keeps the first exception of any worker.
class FirstError {
public:
    void capture() {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
    }
    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

private:
    std::mutex mutex_;
    std::exception_ptr error_;
};

}  // namespace

void parallel_for(std::int64_t count, std::int64_t threads,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
    const std::int64_t workers = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(count, 1));
    if (workers == 1) {
        for (std::int64_t i = 0; i < count; ++i) body(i, 0);
        return;
    }
    std::atomic<std::int64_t> next{0};
    FirstError error;
    const auto work = [&](std::int64_t worker) {
        try {
            for (std::int64_t i = next++; i < count; i = next++) body(i, worker);
        } catch (...) {
            error.capture();
            next = count;
        }
    };
    std::vector<std::jthread> pool;
    for (std::int64_t worker = 1; worker < workers; ++worker) pool.emplace_back(work, worker);
    work(0);
    pool.clear();
    error.rethrow();
}

bool run_chains(const std::vector<std::unique_ptr<ChainTask>>& chains, std::int64_t steps_total, std::int64_t threads,
                const Monitor& monitor) {
    constexpr double slice_seconds = 0.01;
    constexpr auto poll_every = std::chrono::milliseconds(50);

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<ChainTask*> waiting;
    for (const auto& chain : chains)
        if (!chain->finished()) waiting.push_back(chain.get());
    const auto workers = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(1, std::ssize(waiting)));
    std::int64_t active = workers;
    std::atomic<bool> stop{false};
    FirstError error;

    // At most one worker for each unfinished chain: whoever finds none waiting goes home.
    const auto work = [&] {
        std::unique_lock lock(mutex);
        while (!stop && !waiting.empty()) {
            const auto behind = std::min_element(waiting.begin(), waiting.end(), [](auto* a, auto* b) {
                return a->steps_done.load() < b->steps_done.load();
            });
            ChainTask* const chain = *behind;
            waiting.erase(behind);
            lock.unlock();
            try {
                chain->advance(slice_seconds, stop);
            } catch (...) {
                error.capture();
                stop = true;
            }
            lock.lock();
            if (!chain->finished()) waiting.push_back(chain);
        }
        --active;
        changed.notify_all();
    };

    bool completed = true;
    {
        std::vector<std::jthread> pool;
        for (std::int64_t worker = 0; worker < workers; ++worker) pool.emplace_back(work);
        std::unique_lock lock(mutex);
        while (!changed.wait_for(lock, poll_every, [&] { return active == 0; })) {
            lock.unlock();
            Progress progress;
            progress.steps_total = steps_total;
            std::int64_t accepted = 0;
            for (const auto& chain : chains) {
                progress.steps_done += chain->steps_done.load(std::memory_order_relaxed);
                accepted += chain->accepted.load(std::memory_order_relaxed);
            }
            if (progress.steps_done > 0)
                progress.acceptance_rate = static_cast<double>(accepted) / static_cast<double>(progress.steps_done);
            if (completed && !monitor(progress)) {
                completed = false;
                stop = true;
            }
            lock.lock();
        }
    }
    error.rethrow();
    return completed;
}

}  // namespace patrac
