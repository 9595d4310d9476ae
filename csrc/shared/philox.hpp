// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11).
//
// There is no generator state: a block of four 32-bit words is a function of
//   key     = (seed word, chain word)                            64 bits, see stream_key
//   counter = (coordinate block: 48, purpose: 16, step: 64)      word 0 = block[0:32], word 1 = purpose << 16 |
//                                                                block[32:48], words 2 and 3 = step[0:32], step[32:64]
// so any step of any chain can be recomputed alone, on any processor.
#pragma once

#include <cstdint>

#include "shared/lanes.hpp"
#include "shared/purpose.hpp"

namespace patrac::PATRAC_LEVEL {

// The product of the low 32 bits of a 64-bit word with a 32-bit constant, all 64 bits of it.
PATRAC_FN std::uint64_t multiply_low32(std::uint64_t a, std::uint32_t b) {
    return (a & 0xFFFFFFFFu) * b;
}

#if !defined(__CUDACC__)
// Unsigned 64-bit lanes, each holding one 32-bit Philox word.
typedef std::uint64_t Words __attribute__((vector_size(PATRAC_VECTOR_BYTES)));
inline constexpr int word_lanes = PATRAC_VECTOR_BYTES / 8;

PATRAC_FN Words multiply_low32(Words a, std::uint32_t b) {
#if defined(__AVX512F__) && PATRAC_VECTOR_BYTES == 64
    return Words(_mm512_maskz_mul_epu32(0xff, __m512i(a), _mm512_set1_epi64(b)));  // unmasked: a false warning
#elif defined(__AVX2__) && PATRAC_VECTOR_BYTES == 32
    return Words(_mm256_mul_epu32(__m256i(a), _mm256_set1_epi64x(b)));
#elif defined(__SSE2__) && PATRAC_VECTOR_BYTES == 16
    return Words(_mm_mul_epu32(__m128i(a), _mm_set1_epi64x(b)));
#else
    return (a & 0xFFFFFFFFu) * std::uint64_t{b};
#endif
}
#endif

struct PhiloxKey {
    std::uint32_t k0, k1;

    // The key of the next round.
    PATRAC_FN PhiloxKey bumped() const { return {k0 + 0x9E3779B9u, k1 + 0xBB67AE85u}; }
};

inline constexpr int philox_rounds = 10;

// One block, or one block a 64-bit lane: each word sits in the low half of its lane, the high half is ignored.
template <class W>
struct PhiloxBlock {
    W x0, x1, x2, x3;
};

template <class W>
PATRAC_FN PhiloxBlock<W> philox_round(PhiloxBlock<W> c, W k0, W k1) {
    const W p0 = multiply_low32(c.x0, 0xD2511F53u);
    const W p1 = multiply_low32(c.x2, 0xCD9E8D57u);
    return {(p1 >> 32) ^ c.x1 ^ k0, p1, (p0 >> 32) ^ c.x3 ^ k1, p0};
}

PATRAC_FN PhiloxBlock<std::uint64_t> philox4x32_10(PhiloxBlock<std::uint64_t> c, PhiloxKey key) {
    for (int round = 0; round < philox_rounds; ++round, key = key.bumped())
        c = philox_round<std::uint64_t>(c, key.k0, key.k1);
    return c;
}

#if !defined(__CUDACC__)
// The keys of all rounds, spread over lanes once for a whole stream.
struct PhiloxRoundKeys {
    Words k0[philox_rounds], k1[philox_rounds];

    explicit PhiloxRoundKeys(PhiloxKey key) {
        for (int round = 0; round < philox_rounds; ++round, key = key.bumped()) {
            k0[round] = std::uint64_t{key.k0} + Words{};
            k1[round] = std::uint64_t{key.k1} + Words{};
        }
    }
};

PATRAC_FN PhiloxBlock<Words> philox4x32_10(PhiloxBlock<Words> c, const PhiloxRoundKeys& keys) {
    for (int round = 0; round < philox_rounds; ++round) c = philox_round(c, keys.k0[round], keys.k1[round]);
    return c;
}
#endif

// The counter of `block` at `step`, both scalars or both one a lane.
template <class W>
PATRAC_FN PhiloxBlock<W> philox_counter(W block, Purpose purpose, W step) {
    const std::uint64_t tag = std::uint64_t{static_cast<std::uint16_t>(purpose)} << 16;
    return {block, (block >> 32) | tag, step, step >> 32};
}

// Seeds below 2^32 are the key's first word as they are; a longer seed is hashed into both words. The chain is xored in
// last, so the chains of one seed always have different keys.
PATRAC_FN PhiloxKey stream_key(std::uint64_t seed, std::uint32_t chain) {
    if (seed >> 32 == 0) return {static_cast<std::uint32_t>(seed), chain};
    const PhiloxBlock<std::uint64_t> hash =
        philox4x32_10({seed & 0xFFFFFFFFu, seed >> 32, 0, 0}, {0x70617472u, 0x61636E6Eu});
    return {static_cast<std::uint32_t>(hash.x0), static_cast<std::uint32_t>(hash.x1) ^ chain};
}

}  // namespace patrac::PATRAC_LEVEL
