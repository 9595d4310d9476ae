// Evaluations of several chains that are made by one call.
#include "schedule/rendezvous.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

namespace patrac {

Rendezvous::Rendezvous(std::int64_t chains, std::int64_t dim, const double* start, Evaluate evaluate)
    : dim_(dim),
      evaluate_(std::move(evaluate)),
      x_(start, start + chains * dim),
      gradient_(x_.size()),
      value_(static_cast<std::size_t>(chains)) {}

void Rendezvous::advance_together(std::int64_t count, const std::function<void(std::int64_t)>& advance) {
    std::unique_ptr<Group> group = group_of(count);
    for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        group->bodies[at] = [&advance, i] { advance(i); };
        group->fibers[at]->set(group->bodies[at]);
        group->alive.push_back(group->fibers[at].get());
    }
    // From here on nothing throws: a fiber that is suspended must be resumed until it ends.
    std::exception_ptr error;
    enter(count);
    while (!group->alive.empty()) {
        const std::int64_t before = std::ssize(group->alive);
        std::erase_if(group->alive, [&](Fiber* fiber) {
            if (fiber->resume()) return false;
            if (!error) error = fiber->error();
            return true;
        });
        const std::int64_t asked = std::ssize(group->alive);
        meet(asked, before - asked);
    }
    {
        const std::lock_guard lock(mutex_);
        idle_.push_back(std::move(group));
    }
    if (error) std::rethrow_exception(error);
}

std::unique_ptr<Rendezvous::Group> Rendezvous::group_of(std::int64_t size) {
    std::unique_ptr<Group> group;
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            group = std::move(idle_.back());
            idle_.pop_back();
        }
        idle_.reserve(value_.size());  // so that returning it cannot throw: there is a chain for each
    }
    if (!group) group = std::make_unique<Group>();
    const auto wanted = static_cast<std::size_t>(size);
    while (group->fibers.size() < wanted) group->fibers.push_back(std::make_unique<Fiber>());
    if (group->bodies.size() < wanted) group->bodies.resize(wanted);
    group->alive.reserve(wanted);
    return group;
}

void Rendezvous::enter(std::int64_t chains) {
    const std::lock_guard lock(mutex_);
    advancing_ += chains;
}

// Takes the questions of a thread's chains and waits for their answers. Those who wait may have waited for chains of
// this thread that have ended.
void Rendezvous::meet(std::int64_t asked, std::int64_t ended) {
    std::unique_lock lock(mutex_);
    advancing_ -= ended;
    asked_ += asked;
    const std::uint64_t before = calls_;
    if (asked_ > 0 && asked_ == advancing_) call();
    if (asked > 0) called_.wait(lock, [&] { return calls_ != before; });
}

double Rendezvous::evaluate(std::int64_t chain, const double* x, double* gradient) {
    const auto at = static_cast<std::size_t>(chain);
    double* const own = x_.data() + chain * dim_;
    if (Fiber::is_running()) {
        std::copy_n(x, dim_, own);  // nobody reads it before this thread has met the others
        Fiber::suspend();
    } else {
        const std::lock_guard lock(mutex_);
        // The chains' starting points are those of the first call.
        if (calls_ == 0 || !std::equal(x, x + dim_, own)) {
            std::copy_n(x, dim_, own);
            call();
        }
    }
    error_.rethrow();
    std::copy_n(gradient_.data() + chain * dim_, dim_, gradient);
    return value_[at];
}

void Rendezvous::call() {
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
