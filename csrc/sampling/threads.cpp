// The parallel loop and the chain scheduler.
#include "threads.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
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

// Joins its threads at the end of the scope. (std::jthread is not in every standard library yet.)
class Pool {
public:
    Pool() = default;
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    ~Pool() { join(); }

    // Returns false, once at least one thread runs or `needed` is false, if the system has no thread left to give.
    template <class Work>
    bool start(const Work& work, bool needed) {
        try {
            threads_.emplace_back(work);
            return true;
        } catch (const std::system_error&) {
            if (needed && threads_.empty()) throw;
            return false;
        }
    }
    void join() {
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }

private:
    std::vector<std::thread> threads_;
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
    Pool pool;
    for (std::int64_t worker = 1; worker < workers; ++worker)
        if (!pool.start([&work, worker] { work(worker); }, false)) break;
    work(0);
    pool.join();
    error.rethrow();
}

namespace {

// Waits a moment without leaving the processor.
inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Pauses before a thread lets go of its processor: about 20 microseconds on x86, longer than the serial part of a step.
// Elsewhere a pause may be shorter; then helpers sleep between steps, and the numbers are the same.
constexpr int patience = 500;

}  // namespace

Team::Team(std::int64_t size) {
    helpers_.reserve(static_cast<std::size_t>(std::max<std::int64_t>(0, size - 1)));  // so that only threads can fail
    try {
        for (std::int64_t member = 1; member < size; ++member) helpers_.emplace_back([this, member] { help(member); });
    } catch (const std::system_error&) {  // no thread left: the sums are the same with those that there are
    }
}

Team::~Team() {
    closing_ = true;
    ++round_;
    round_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
}

void Team::run(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) {
    body_ = &body;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(std::ssize(helpers_), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);  // publishes the four above
    round_.notify_all();
    work(0);
    for (int spins = 0; busy_.load(std::memory_order_acquire) != 0; ++spins) {
        // A helper may have been put off its processor: it needs one to finish.
        if (spins < patience)
            pause();
        else
            std::this_thread::yield();
    }
}

void Team::work(std::int64_t member) {
    for (std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count_;
         i = next_.fetch_add(1, std::memory_order_relaxed))
        (*body_)(i, member);
}

void Team::help(std::int64_t member) {
    for (std::uint32_t seen = 0;;) {
        for (int spins = 0; spins < patience && round_.load(std::memory_order_acquire) == seen; ++spins) pause();
        round_.wait(seen, std::memory_order_acquire);
        // No round is missed: the next one waits until this one's work is done.
        ++seen;
        if (closing_) return;
        work(member);
        busy_.fetch_sub(1, std::memory_order_release);
    }
}

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

    const std::int64_t together =
        waiting.empty() ? 1
                        : std::clamp<std::int64_t>(std::ssize(waiting) / workers, 1, waiting.front()->side_by_side());

    // At most one worker for each unfinished chain: whoever finds none waiting goes home.
    const auto work = [&] {
        std::vector<ChainTask*> group;
        std::unique_lock lock(mutex);
        while (!stop && !waiting.empty()) {
            const auto end = waiting.begin() + std::min(together, std::ssize(waiting));
            std::partial_sort(waiting.begin(), end, waiting.end(),
                              [](auto* a, auto* b) { return a->steps_done.load() < b->steps_done.load(); });
            group.assign(waiting.begin(), end);
            waiting.erase(waiting.begin(), end);
            lock.unlock();
            try {
                group.front()->advance(group, slice_seconds, stop);
            } catch (...) {
                error.capture();
                stop = true;
            }
            lock.lock();
            for (ChainTask* const chain : group)
                if (!chain->finished() && !chain->waits()) waiting.push_back(chain);
        }
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
            if (pool.start(work, true)) continue;
            // Fewer workers than asked for give the same draws.
            const std::lock_guard lock(mutex);
            active -= workers - worker;
            break;
        }
        std::unique_lock lock(mutex);
        while (!changed.wait_for(lock, poll_every, [&] { return active == 0; })) {
            lock.unlock();
            // Asked even after a stop, so that a second Ctrl-C does not outlive the run.
            completed = monitor(progress()) && completed;
            if (!completed) stop = true;
            lock.lock();
        }
    } catch (...) {
        stop = true;
        throw;
    }
    pool.join();
    // The last word on progress, and the last look for a Ctrl-C of this run.
    monitor(progress());
    error.rethrow();
    return completed;
}

}  // namespace

bool run_schedule(const ChainTasks& chains, std::int64_t threads, std::int64_t* warmup_stable, const Monitor& monitor) {
    while (run_chains(chains, threads, monitor)) {
        if (chains.empty() || chains.front()->finished()) return true;
        // All wait at the same step.
        std::vector<const std::vector<LogLikelihoodBlock>*> blocks;
        for (const auto& chain : chains) blocks.push_back(&chain->schedule().blocks());
        const bool stable = is_stable(blocks), end = stable || chains.front()->schedule().phase_is_over();
        if (end) warmup_stable[chains.front()->schedule().phase_index()] = stable;
        for (const auto& chain : chains) chain->resume(end);
    }
    return false;
}

}  // namespace patrac
