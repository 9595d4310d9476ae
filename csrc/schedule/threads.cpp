// The parallel loop and the team.
#include "schedule/threads.hpp"

#include <algorithm>

#include "schedule/interruption.hpp"

namespace patrac {

void parallel_for(std::int64_t count, std::int64_t threads,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
    const std::int64_t workers = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(count, 1));
    if (workers == 1) {
        for (std::int64_t i = 0; i < count; ++i) {
            Interruption::check();
            body(i, 0);
        }
        return;
    }
    Interruption* const call = Interruption::current();
    std::atomic<std::int64_t> next{0};
    FirstError error;
    const auto work = [&](std::int64_t worker) {
        const Interruption::Part part(call);
        try {
            for (std::int64_t i = next++; i < count; i = next++) {
                Interruption::check();
                body(i, worker);
            }
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

// Pauses before a thread yields its processor: about 20 microseconds on x86, longer than the serial part of a step.
// Elsewhere a pause may be shorter; then helpers sleep between steps, and the numbers are the same.
constexpr int patience = 500;

}  // namespace

// With fewer helpers the sums are the same.
Team::Team(std::int64_t size) {
    for (std::int64_t member = 1; member < size; ++member)
        if (!helpers_.start([this, member] { help(member); }, false)) break;
}

Team::~Team() {
    closing_ = true;
    ++round_;
    round_.notify_all();
    helpers_.join();
}

void Team::run(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) {
    error_.clear();
    body_ = &body;
    call_ = Interruption::current();
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(helpers_.size(), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);  // publishes what is above
    round_.notify_all();
    work(0);
    for (int spins = 0; busy_.load(std::memory_order_acquire) != 0; ++spins) {
        // A helper may have been descheduled and needs a processor to finish.
        if (spins < patience)
            pause();
        else
            std::this_thread::yield();
    }
    error_.rethrow();
}

void Team::work(std::int64_t member) {
    const Interruption::Part part(call_);
    try {
        for (std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count_;
             i = next_.fetch_add(1, std::memory_order_relaxed))
            (*body_)(i, member);
    } catch (...) {
        error_.capture();
        next_.store(count_, std::memory_order_relaxed);  // nobody begins another piece
    }
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

}  // namespace patrac
