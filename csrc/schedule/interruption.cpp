// Calls that may be interrupted.
#include "schedule/interruption.hpp"

#include <utility>

namespace patrac {
namespace {

constexpr auto ask_every = std::chrono::milliseconds(50);

thread_local Interruption* present = nullptr;

}  // namespace

Interruption::Part::Part(Interruption* call) : before_(std::exchange(present, call)) {}
Interruption::Part::~Part() {
    present = before_;
}

Interruption::Interruption() : next_(Clock::now() + ask_every) {}
Interruption::~Interruption() = default;

Interruption* Interruption::current() {
    return present;
}

void Interruption::check() {
    Interruption* const call = present;
    if (!call) return;
    if (call->caller_ == std::this_thread::get_id()) {
        if (const auto now = Clock::now(); now >= call->next_) {
            if (call->is_requested()) call->requested_ = true;
            call->next_ = Clock::now() + ask_every;
        }
    }
    if (call->requested_.load(std::memory_order_relaxed)) throw Interrupted();
}

}  // namespace patrac
