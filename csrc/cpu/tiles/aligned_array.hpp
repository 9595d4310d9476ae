// Arrays aligned to a cache line, which loops over whole vectors may read beyond the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "shared/out_of_memory.hpp"

namespace patrac::PATRAC_LEVEL {

// Zeroed array aligned to a cache line, so that no vector of any level straddles two lines. The rest of its last line
// is zero too: loops over whole vectors may read beyond the end, and may write only zeros there.
template <class T>
class AlignedArray {
public:
    AlignedArray() = default;
    explicit AlignedArray(std::int64_t size) : size_(size) {
        constexpr std::size_t line = 64;
        const std::size_t bytes = (static_cast<std::size_t>(size) * sizeof(T) + line) / line * line;
        data_.reset(static_cast<T*>(std::aligned_alloc(line, bytes)));
        if (!data_) throw OutOfMemory(bytes);
        std::fill_n(data_.get(), bytes / sizeof(T), T(0));
    }
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    std::int64_t size() const { return size_; }
    T& operator[](std::int64_t i) { return data_.get()[i]; }
    const T& operator[](std::int64_t i) const { return data_.get()[i]; }

private:
    struct Free {
        void operator()(T* pointer) const { std::free(pointer); }
    };
    std::unique_ptr<T, Free> data_;
    std::int64_t size_ = 0;
};

}  // namespace patrac::PATRAC_LEVEL
