// Threads that end with a scope, and the first exception of any of them.
#pragma once

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace patrac {

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

    // Returns false if the system has no thread left; throws instead if `needed` and no thread runs yet.
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

}  // namespace patrac
