// The operations that the benchmarks' floor counts, repeated so that a caller can time them.
#pragma once

#include <cstdint>

#include "cpu/chain/noise.hpp"
#include "cpu/levels/elementary_testing.hpp"
#include "cpu/tiles/packed.hpp"

namespace patrac::PATRAC_LEVEL {

// Makes the compiler believe that `value` is read and written here.
template <class V>
PATRAC_FN void touch(V& value) {
#if defined(__x86_64__)
    asm volatile("" : "+x"(value));
#elif defined(__aarch64__)
    asm volatile("" : "+w"(value));
#else
    asm volatile("" : "+m"(value));
#endif
}

// Fused multiply-adds of whole vectors in registers, enough chains to hide their latency; returns how many.
template <class T>
std::int64_t repeat_multiply_add(std::int64_t repeats) {
    using V = Vec<T>;
    constexpr int chains = registers > 16 ? 20 : 10, inner = 100;
    V sum[chains], factor = broadcast<V>(T(0.5));
    touch(factor);
    unrolled<chains>([&](int i) __attribute__((always_inline)) { sum[i] = broadcast<V>(T(i)); });
    for (std::int64_t r = 0; r < repeats * inner; ++r)
        unrolled<chains>([&](int i) __attribute__((always_inline)) {
            sum[i] = fma(sum[i], factor, factor);
            touch(sum[i]);
        });
    return repeats * inner * chains * lanes_v<V>;
}

// Values of an array small enough for half the first cache.
inline constexpr std::int64_t rate_values = 2048;

template <class T>
std::int64_t repeat_elementary(Elementary function, std::int64_t repeats) {
    AlignedArray<T> x(rate_values), y(rate_values);
    // In (0, 1), where every function is defined and no shortcut for large arguments is taken.
    for (std::int64_t i = 0; i < rate_values; ++i) x[i] = (static_cast<T>(i) + T(0.5)) / static_cast<T>(rate_values);
    for (std::int64_t r = 0; r < repeats; ++r) apply_elementary(function, x.data(), y.data(), rate_values);
    return repeats * rate_values;
}

template <class T>
std::int64_t repeat_normals(std::int64_t repeats) {
    const PhiloxRoundKeys keys(stream_key(0, 0));
    AlignedArray<T> normals(noise_size<T>(1, rate_values));
    for (std::int64_t r = 0; r < repeats; ++r)
        fill_steps(keys, Purpose::proposal, static_cast<std::uint64_t>(r), 1, rate_values, normals.data());
    return repeats * rate_values;
}

}  // namespace patrac::PATRAC_LEVEL
