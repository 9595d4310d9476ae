// Threads that end with a scope, and the first exception of any of them.
#pragma once

#include <cstdint>
#include <exception>
#include <iterator>
#include <mutex>
#include <new>
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
    // Where no worker may capture one at the same time:
    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }
    void clear() { error_ = nullptr; }

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

    // Returns false if the system has no thread or no memory for one left; throws instead if `needed` and no thread
    // runs yet.
    template <class Work>
    bool start(const Work& work, bool needed) {
        try {
            threads_.emplace_back(work);
            return true;
        } catch (const std::system_error&) {
            if (needed && threads_.empty()) throw;
        } catch (const std::bad_alloc&) {
            if (needed && threads_.empty()) throw;
        }
        return false;
    }
    std::int64_t size() const { return std::ssize(threads_); }
    void join() {
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }

private:
    std::vector<std::thread> threads_;
};

}  // namespace patrac
