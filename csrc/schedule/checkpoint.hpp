// The state of a chain as bytes: written at the end of a run, and read by a run that goes on from there to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace patrac {

// Each part of a chain names its numbers once, in exchange(Checkpoint&), which writes them or reads them back in the
// same order. The bytes are those of this machine's types; who keeps them records which run they belong to.
class Checkpoint {
public:
    Checkpoint() = default;  // to write
    explicit Checkpoint(std::string_view saved) : saved_(saved), reads_(true) {}

    bool reads() const { return reads_; }
    const std::string& bytes() const { return written_; }

    template <class... X>
    void exchange(X&... values) {
        (exchange_array(&values, 1), ...);
    }

    template <class X>
    void exchange_array(X* values, std::int64_t count) {
        static_assert(std::is_trivially_copyable_v<X>);
        const std::size_t size = static_cast<std::size_t>(count) * sizeof(X);
        if (!reads_) {
            written_.append(reinterpret_cast<const char*>(values), size);
            return;
        }
        if (size > saved_.size()) refuse();
        saved_.copy(reinterpret_cast<char*>(values), size);  // memcpy may not be given the null pointer of no values
        saved_.remove_prefix(size);
    }

    // A vector whose length belongs to the state.
    template <class X>
    void exchange_vector(std::vector<X>& values) {
        std::int64_t count = std::ssize(values);
        exchange(count);
        if (reads_) {
            if (count < 0 || static_cast<std::uint64_t>(count) > saved_.size() / sizeof(X)) refuse();
            values.resize(static_cast<std::size_t>(count));
        }
        exchange_array(values.data(), count);
    }

    // After the last part: nothing may be left.
    void finish() const {
        if (reads_ && !saved_.empty()) refuse();
    }

    [[noreturn]] static void refuse() {
        throw std::invalid_argument("state: it belongs to a run of other settings, or is damaged");
    }

private:
    std::string written_;
    std::string_view saved_;
    bool reads_ = false;
};

}  // namespace patrac
