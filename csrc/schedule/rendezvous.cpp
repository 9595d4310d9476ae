// Evaluations of several chains that are made by one call.
#include "schedule/rendezvous.hpp"

#include <algorithm>
#include <utility>

namespace patrac {

Rendezvous::Rendezvous(std::int64_t chains, std::int64_t dim, const double* start, Evaluate evaluate)
    : dim_(dim),
      evaluate_(std::move(evaluate)),
      x_(start, start + chains * dim),
      gradient_(x_.size()),
      value_(static_cast<std::size_t>(chains)) {}

void Rendezvous::enter() {
    const std::lock_guard lock(mutex_);
    ++advancing_;
}

// Those who wait may have waited for this chain alone.
void Rendezvous::leave() {
    const std::lock_guard lock(mutex_);
    --advancing_;
    if (asked_ > 0) call_if_complete();
}

double Rendezvous::evaluate(std::int64_t chain, const double* x, double* gradient) {
    std::unique_lock lock(mutex_);
    std::copy_n(x, dim_, x_.data() + chain * dim_);
    ++asked_;
    const std::uint64_t before = calls_;
    call_if_complete();
    called_.wait(lock, [&] { return calls_ != before; });
    error_.rethrow();
    std::copy_n(gradient_.data() + chain * dim_, dim_, gradient);
    return value_[static_cast<std::size_t>(chain)];
}

// A chain that starts, which holds no turn, waits for nobody.
void Rendezvous::call_if_complete() {
    if (asked_ < advancing_) return;
    try {
        evaluate_(x_.data(), gradient_.data(), value_.data());
    } catch (...) {
        error_.capture();
    }
    asked_ = 0;
    ++calls_;
    called_.notify_all();
}

}  // namespace patrac
