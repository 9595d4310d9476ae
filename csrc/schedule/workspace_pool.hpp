// Workspaces that calls from any thread take in turn, so that repeated calls allocate nothing and none waits.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace patrac {

template <class Workspace>
class WorkspacePool {
public:
    // A workspace for the time of one call. The lock is held only while it is taken and returned. What an exception
    // left half done is not used again.
    class Lease {
    public:
        Lease(WorkspacePool& pool, std::unique_ptr<Workspace> workspace)
            : pool_(pool), workspace_(std::move(workspace)) {}
        ~Lease() {
            if (std::uncaught_exceptions() > exceptions_) return;
            const std::lock_guard lock(pool_.mutex_);
            pool_.idle_.push_back(std::move(workspace_));
        }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        Workspace& operator*() const { return *workspace_; }

    private:
        WorkspacePool& pool_;
        std::unique_ptr<Workspace> workspace_;
        const int exceptions_ = std::uncaught_exceptions();
    };

    // An idle workspace, or the one that make() returns, a std::unique_ptr.
    template <class Make>
    Lease take(const Make& make) {
        {
            const std::lock_guard lock(mutex_);
            if (!idle_.empty()) {
                std::unique_ptr<Workspace> taken = std::move(idle_.back());
                idle_.pop_back();
                return Lease(*this, std::move(taken));
            }
            idle_.reserve(++made_);  // so that returning it cannot throw
        }
        return Lease(*this, make());
    }

private:
    std::mutex mutex_;
    std::size_t made_ = 0;
    std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace patrac
