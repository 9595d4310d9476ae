// The way out of a long computation whose caller no longer wants the result.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

namespace patrac {

// Thrown in a computation whose caller no longer wants the result.
class Interrupted final : public std::exception {
public:
    const char* what() const noexcept override { return "interrupted"; }
};

// A call that may be interrupted, which lives on the thread that calls. That thread asks the caller about every 50 ms;
// threads that help it read the answer.
class Interruption {
public:
    Interruption();
    virtual ~Interruption();
    Interruption(const Interruption&) = delete;
    Interruption& operator=(const Interruption&) = delete;

    // The call to which this thread's work belongs, or null.
    static Interruption* current();
    // Between two pieces of work: throws Interrupted if the caller of the present call no longer wants its result.
    static void check();

    // Makes the work of this thread part of a call, unless it is null.
    class Part {
    public:
        explicit Part(Interruption* call);
        ~Part();
        Part(const Part&) = delete;
        Part& operator=(const Part&) = delete;

    private:
        Interruption* before_;
    };

private:
    using Clock = std::chrono::steady_clock;

    virtual bool is_requested() = 0;  // on the calling thread

    Part part_{this};
    const std::thread::id caller_ = std::this_thread::get_id();
    Clock::time_point next_;
    std::atomic<bool> requested_{false};
};

}  // namespace patrac
