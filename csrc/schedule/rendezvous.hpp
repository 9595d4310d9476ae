// Evaluations of several chains that are made by one call: each chain waits until all that advance have asked.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "schedule/fiber.hpp"
#include "schedule/thread_pool.hpp"

namespace patrac {

// The call always has one row for each chain, at its last point if the chain does not advance: a row's numbers may
// depend on the number of rows (matrix products round differently), and so would depend on the timing of the threads.
class Rendezvous {
public:
    // x (chains, dim) -> gradient (chains, dim) and value (chains,); may throw.
    using Evaluate = std::function<void(const double* x, double* gradient, double* value)>;

    // start (chains, dim): the points of chains that have not asked yet.
    Rendezvous(std::int64_t chains, std::int64_t dim, const double* start, Evaluate evaluate);

    // Calls advance(i) for i = 0..count-1, each of which advances a chain: this thread leaves one where it asks for an
    // evaluation and continues another. Other threads do the same with other chains, and all wait for each other. The
    // first exception is rethrown here.
    void advance_together(std::int64_t count, const std::function<void(std::int64_t)>& advance);

    // Evaluates x (dim,) of a chain; returns its value and writes its gradient (dim,). Rethrows what the call threw. A
    // chain that starts, outside advance_together(), waits for nobody.
    double evaluate(std::int64_t chain, const double* x, double* gradient);

private:
    // The chains that a thread advances, and what they run on.
    struct Group {
        std::vector<std::unique_ptr<Fiber>> fibers;
        std::vector<std::function<void()>> bodies;
        std::vector<Fiber*> alive;
    };

    std::unique_ptr<Group> group_of(std::int64_t size);
    void enter(std::int64_t chains);
    void meet(std::int64_t asked, std::int64_t ended);
    void call();

    const std::int64_t dim_;
    const Evaluate evaluate_;
    std::mutex mutex_;
    std::condition_variable called_;
    std::vector<double> x_, gradient_, value_;
    std::int64_t advancing_ = 0, asked_ = 0;
    std::uint64_t calls_ = 0;
    FirstError error_;
    std::vector<std::unique_ptr<Group>> idle_;
};

}  // namespace patrac
