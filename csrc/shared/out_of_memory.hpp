// The exception of an allocation that failed, which says how much was asked for.
#pragma once

#include <cstddef>
#include <cstdio>
#include <new>

namespace patrac {

class OutOfMemory final : public std::bad_alloc {
public:
    // Allocates nothing.
    explicit OutOfMemory(std::size_t bytes) noexcept {
        std::snprintf(words_, sizeof words_, "%zu bytes could not be allocated", bytes);
    }
    const char* what() const noexcept override { return words_; }

private:
    char words_[64];
};

}  // namespace patrac
