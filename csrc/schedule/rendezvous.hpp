// Evaluations of several chains that are made by one call: each chain waits until all that advance have asked.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

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

    // Held by a chain while it advances; the others wait for it.
    class Turn {
    public:
        explicit Turn(Rendezvous& of) : of_(of) { of_.enter(); }
        ~Turn() { of_.leave(); }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

    private:
        Rendezvous& of_;
    };

    // Evaluates x (dim,) of a chain; returns its value and writes its gradient (dim,). Rethrows what the call threw.
    double evaluate(std::int64_t chain, const double* x, double* gradient);

private:
    void enter();
    void leave();
    void call_if_complete();

    const std::int64_t dim_;
    const Evaluate evaluate_;
    std::mutex mutex_;
    std::condition_variable called_;
    std::vector<double> x_, gradient_, value_;
    std::int64_t advancing_ = 0, asked_ = 0;
    std::uint64_t calls_ = 0;
    FirstError error_;
};

}  // namespace patrac
