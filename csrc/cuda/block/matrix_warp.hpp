// Products of 16-bit floats by the matrix units, a warp at a time: CUDA's own, or one host thread in place of all
// lanes.
//
// bfloat16 has the exponents of float32 and 8 significant bits. Cut off, not rounded, three of them hold a float32
// exactly: x = x0 + x1 + x2, |x1| < 2^-7 |x|, |x2| < 2^-15 |x|. Products of two are exact in float32, so the
// only errors are the omitted products and the rounding of sums. Where a coarse product is enough, one bfloat16 takes
// the place of the three, rounded to nearest: |x - x0| <= 2^-8 |x|, up to the smallest numbers.
#pragma once

#include "cuda/block/thread_block.hpp"

namespace patrac::PATRAC_LEVEL {

// The values that the lanes of a warp hold: registers on the device, an array where one host thread emulates all lanes.
template <class X>
struct PerLane {
#if defined(__CUDACC__)
    X x;
    PATRAC_DEVICE X& operator[](int) { return x; }
#else
    X x[warp_size];
    X& operator[](int lane) { return x[lane]; }
#endif
};

#if defined(__CUDACC__)
PATRAC_DEVICE int warp_of(const ThreadBlock& block) {
    return block.thread / warp_size;
}
PATRAC_DEVICE int warps_of(const ThreadBlock& block) {
    return block.threads / warp_size;
}
template <class F>
PATRAC_DEVICE void each_lane(const ThreadBlock& block, const F& f) {
    f(block.thread % warp_size);
}
#else
inline int warp_of(const ThreadBlock& block) {
    return block.thread;
}
inline int warps_of(const ThreadBlock& block) {
    return block.threads;
}
template <class F>
void each_lane(const ThreadBlock&, const F& f) {
    for (int lane = 0; lane < warp_size; ++lane) f(lane);
}
#endif

// Two bfloat16 in one register, the first in its low half.
PATRAC_DEVICE std::uint32_t bf16_pair(float first, float second) {
    return (to_bits(first) >> 16) | (to_bits(second) & 0xffff0000u);
}
// The upper part of x as a float; what is left of x afterwards.
PATRAC_DEVICE float cut_bf16(float& x) {
    const float upper = from_bits<float>(to_bits(x) & 0xffff0000u);
    x -= upper;
    return upper;
}
// Two floats rounded to nearest, ties to even, as bf16_pair() has them.
PATRAC_DEVICE std::uint32_t rounded_bf16_pair(float first, float second) {
#if defined(__CUDACC__)
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
#else
    const auto rounded = [](float x) {
        const std::uint32_t bits = to_bits(x);
        return x == x ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16 : 0x7fffu;  // not finite stays so
    };
    return rounded(first) | rounded(second) << 16;
#endif
}

// How four floats become factors of products: put(part, first two, last two) is called for each part.
struct ExactParts {
    static constexpr int count = 3;

    template <class Put>
    PATRAC_DEVICE static void split(Four<float> x, const Put& put) {
#pragma unroll
        for (int p = 0; p < count; ++p) {
            float upper[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) upper[i] = cut_bf16(x.x[i]);
            put(p, bf16_pair(upper[0], upper[1]), bf16_pair(upper[2], upper[3]));
        }
    }
};
// Rounded rather than cut off: what cutting takes off has the sign of the number, so that its errors would add up.
struct RoundedPart {
    static constexpr int count = 1;

    template <class Put>
    PATRAC_DEVICE static void split(const Four<float>& x, const Put& put) {
        put(0, rounded_bf16_pair(x.x[0], x.x[1]), rounded_bf16_pair(x.x[2], x.x[3]));
    }
};

// Bytes 2 i and 2 i + 1 of a word, exact: bits set in the fraction of 2^23, which is then taken off.
PATRAC_DEVICE std::uint32_t bf16_of_bytes(std::uint32_t word, int i) {
    const auto value = [&](int byte) {
        return from_bits<float>(0x4b000000u | ((word >> (8 * byte)) & 0xffu)) - 8388608.0f;
    };
    return bf16_pair(value(2 * i), value(2 * i + 1));
}
// Makes the compiler hold a value in a register, rather than compute it again wherever it is used.
PATRAC_DEVICE void keep([[maybe_unused]] std::uint32_t& x) {
#if defined(__CUDACC__)
    asm volatile("" : "+r"(x));
#endif
}

// Fragments of a 16 x 16 matrix A, a 16 x 8 matrix B and a 16 x 8 matrix D. With g = lane / 4 and q = lane % 4 a lane
// holds, two columns (of A and D) or rows (of B) side by side,
//   A  (g, 2q ..), (g + 8, 2q ..), (g, 2q + 8 ..), (g + 8, 2q + 8 ..)
//   B  (2q .., g), (2q + 8 .., g)
//   D  (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
struct FragmentA {
    std::uint32_t x[4];
};
struct alignas(8) FragmentB {
    std::uint32_t x[2];
};
struct FragmentD {
    float x[4];
};

// D += A B, sums in float32. The matrix unit may cut off where a sum is rounded here.
#if defined(__CUDACC__)
PATRAC_DEVICE void add_product(PerLane<FragmentD>& d, PerLane<FragmentA>& a, PerLane<FragmentB>& b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d.x.x[0]), "+f"(d.x.x[1]), "+f"(d.x.x[2]), "+f"(d.x.x[3])
        : "r"(a.x.x[0]), "r"(a.x.x[1]), "r"(a.x.x[2]), "r"(a.x.x[3]), "r"(b.x.x[0]), "r"(b.x.x[1]));
}
#else
inline void add_product(PerLane<FragmentD>& d, PerLane<FragmentA>& a, PerLane<FragmentB>& b) {
    const auto half = [](std::uint32_t pair, int i) {
        return from_bits<float>(i == 0 ? pair << 16 : pair & 0xffff0000u);
    };
    float left[16][16], right[16][8];
    for (int lane = 0; lane < warp_size; ++lane) {
        const int g = lane / 4, q = lane % 4;
        for (int i = 0; i < 2; ++i) {
            for (int part = 0; part < 4; ++part)
                left[g + part % 2 * 8][2 * q + part / 2 * 8 + i] = half(a[lane].x[part], i);
            for (int part = 0; part < 2; ++part) right[2 * q + part * 8 + i][g] = half(b[lane].x[part], i);
        }
    }
    for (int lane = 0; lane < warp_size; ++lane)
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            for (int k = 0; k < 16; ++k) d[lane].x[i] = fma(left[row][k], right[k][column], d[lane].x[i]);
        }
}
#endif

}  // namespace patrac::PATRAC_LEVEL
