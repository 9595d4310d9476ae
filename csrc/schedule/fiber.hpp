// A function on a stack of its own, which can be left in the middle and resumed.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <exception>
#include <functional>

namespace patrac {

// Runs a function until it calls suspend() or ends, and resumes it. It stays on one thread from its start to its end.
// No exception may be in flight or handled where it is suspended.
class Fiber {
public:
    // The stack takes memory only as far as it is used.
    Fiber();
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Sets the function that the next resume() starts; it outlives its end. The last one has ended.
    void set(const std::function<void()>& body);
    // Returns true when it is suspended, and false when it has ended, by an exception where error() is not null.
    bool resume() noexcept;
    const std::exception_ptr& error() const { return error_; }

    static bool is_running();  // on this thread
    static void suspend();     // the fiber that is running

private:
    static void enter() noexcept;

    ucontext_t own_{}, caller_{};
    void* stack_ = nullptr;  // with a page below it that traps an overflow
    std::size_t bytes_ = 0;
    const std::function<void()>* body_ = nullptr;
    bool ended_ = true;
    std::exception_ptr error_;
};

}  // namespace patrac
