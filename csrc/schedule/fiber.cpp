// Fibers on the contexts of POSIX.
#if defined(__APPLE__)
#define _XOPEN_SOURCE 700  // without it the header declares none
#define _DARWIN_C_SOURCE
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif

#include "schedule/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace patrac {
namespace {

// A step calls functions a few levels deep, whose arrays are on the heap.
constexpr std::size_t stack_bytes = 256 * 1024;

thread_local Fiber* running = nullptr;

}  // namespace

Fiber::Fiber() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = stack_bytes + page;
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    stack_ = memory;
    if (mprotect(memory, page, PROT_NONE) != 0) {
        munmap(memory, bytes_);
        throw std::bad_alloc();
    }
}

Fiber::~Fiber() {
    munmap(stack_, bytes_);
}

void Fiber::set(const std::function<void()>& body) {
    body_ = &body;
    error_ = nullptr;
    ended_ = false;
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack_;
    own_.uc_stack.ss_size = bytes_;
    own_.uc_link = nullptr;
    makecontext(&own_, &Fiber::enter, 0);
}

bool Fiber::resume() noexcept {
    running = this;
    swapcontext(&caller_, &own_);
    running = nullptr;
    return !ended_;
}

bool Fiber::is_running() {
    return running != nullptr;
}

void Fiber::suspend() {
    Fiber& own = *running;
    swapcontext(&own.own_, &own.caller_);
}

void Fiber::enter() noexcept {
    Fiber& own = *running;
    try {
        (*own.body_)();
    } catch (...) {
        own.error_ = std::current_exception();
    }
    own.ended_ = true;
    swapcontext(&own.own_, &own.caller_);
}

}  // namespace patrac
