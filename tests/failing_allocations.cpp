// Preloaded into a process, it makes one allocation of the core fail, or the starts of threads. Allocations by threads
// that hold the GIL are not counted: they belong to the bindings' library, which does without none.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <pthread.h>

namespace {

std::atomic<long> allocations{0}, failing{0}, threads{0}, allowed_threads{-1};

bool fails() {
    const long failing_now = failing;
    if (failing_now == 0) return false;
    using Check = int (*)();
    static const auto holds_gil = reinterpret_cast<Check>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
    return !holds_gil() && ++allocations == failing_now;
}

void* allocate(std::size_t size, std::size_t alignment) {
    void* memory = nullptr;
    if (fails() || posix_memalign(&memory, alignment, size ? size : 1) != 0) throw std::bad_alloc();
    return memory;
}

}  // namespace

extern "C" {

// The n-th allocation from now on fails, or none if n is 0. Returns the number of those since the last call.
long fail_allocation(long n) {
    failing = n;
    return allocations.exchange(0);
}

// No thread starts after the next n, or all do if n is negative.
void allow_threads(long n) {
    threads = 0;
    allowed_threads = n;
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
    void* memory = nullptr;
    if (fails() || posix_memalign(&memory, alignment, size) != 0) return nullptr;
    return memory;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
    const long allowed = allowed_threads;
    if (allowed >= 0 && threads++ >= allowed) return EAGAIN;
    using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
    return create(thread, attributes, start, argument);
}

}  // extern "C"

void* operator new(std::size_t size) {
    return allocate(size, 16);
}
void* operator new[](std::size_t size) {
    return allocate(size, 16);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
