// Native threads: a parallel loop, and a team for pieces of work that are too short to start a thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "schedule/thread_pool.hpp"

namespace patrac {

class Interruption;

// Calls body(index, worker) for index 0..count-1 on at most `threads` threads; the first exception is rethrown here.
// Between two indices the present call may be interrupted.
void parallel_for(std::int64_t count, std::int64_t threads,
                  const std::function<void(std::int64_t index, std::int64_t worker)>& body);

// Threads that share many short pieces of work and wait for the next one without sleeping.
class Team {
public:
    // At most `size` threads, the caller one of them: fewer where the system has none left.
    explicit Team(std::int64_t size);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    std::int64_t size() const { return helpers_.size() + 1; }
    // Calls body(index, member) for index 0..count-1, member 0 being this thread; returns when all are done. The first
    // exception is rethrown here, and pieces that have not begun by then are left out.
    void run(std::int64_t count, const std::function<void(std::int64_t index, std::int64_t member)>& body);

private:
    void help(std::int64_t member);
    void work(std::int64_t member);

    Pool helpers_;
    FirstError error_;
    const std::function<void(std::int64_t, std::int64_t)>* body_ = nullptr;
    Interruption* call_ = nullptr;  // to which the work belongs
    std::int64_t count_ = 0;
    std::atomic<bool> closing_{false};
    // Each on a cache line of its own: members read or write them at the same time.
    alignas(64) std::atomic<std::uint32_t> round_{0};
    alignas(64) std::atomic<std::int64_t> next_{0};
    alignas(64) std::atomic<std::int64_t> busy_{0};
};

}  // namespace patrac
