// float32 tanh from tables that one register holds, where an instruction looks all lanes up at once.
#pragma once

#include "shared/lanes.hpp"

#if !defined(__CUDACC__) && defined(__AVX512F__) && PATRAC_VECTOR_BYTES == 64
#define PATRAC_TANH_TABLE
#endif

namespace patrac::PATRAC_LEVEL {

#if defined(PATRAC_TANH_TABLE)
inline constexpr bool has_tanh_table = true;

// Points c_n near n times the spacing and tanh c_n. c_n is the float32 nearby whose tanh is closest to a float32,
// within 0.0003 ulp, so that the table adds no error. From the last point's cell on, 1 is nearer than 1.3 ulp.
inline constexpr float tanh_spacing = 0x1.3p-1f;
alignas(64) inline constexpr float tanh_points[16] = {0x0p+0f,        0x1.3002f2p-1f, 0x1.3007fep+0f, 0x1.c7f15p+0f,
                                                      0x1.2fee7ap+1f, 0x1.7c00cep+1f, 0x1.c7f6acp+1f, 0x1.0a0338p+2f,
                                                      0x1.2ffe1ep+2f, 0x1.55ffcap+2f, 0x1.7bf27ep+2f, 0x1.a21ca6p+2f,
                                                      0x1.c79ab8p+2f, 0x1.ec3fa6p+2f, 0x1.0a2b24p+3f, 0x1.1dp+3f};
alignas(64) inline constexpr float tanh_values[16] = {0x0p+0f,        0x1.10b164p-1f, 0x1.a8e0c6p-1f, 0x1.e3bd88p-1f,
                                                      0x1.f73514p-1f, 0x1.fd4e28p-1f, 0x1.ff2d18p-1f, 0x1.ffbfb4p-1f,
                                                      0x1.ffec6p-1f,  0x1.fffa04p-1f, 0x1.fffe2cp-1f, 0x1.ffff72p-1f,
                                                      0x1.ffffd4p-1f, 0x1.fffff2p-1f, 0x1.fffffcp-1f, 0x1p+0f};

// table[n], n the low four bits of each lane of `index`.
PATRAC_FN float look_up(const float (&table)[16], std::uint32_t index) {
    return table[index & 15];
}
PATRAC_FN Vec<float> look_up(const float (&table)[16], bits_t<Vec<float>> index) {
    return Vec<float>(_mm512_maskz_permutexvar_ps(0xffff, __m512i(index), _mm512_load_ps(table)));
}

// tanh x; 2.5 ulp. With |x| = c_n + r, |r| <= 0.3, T = tanh c_n and Q = r coth r = 1 + z (q1 + z q2), z = r^2,
//   tanh |x| = (T Q + r) / (Q + T r).
// Q is minimax, relative error below 5.5e-8. For n = 0 the quotient is |x| / Q: subnormals are kept. For n = 15 both
// sides round the same sum, so the quotient is exactly 1; it is never larger. The sign is put back last: exactly odd,
// -0 kept, NaN gives NaN.
template <class V>
PATRAC_FN V tanh_by_table(V x) {
    const V y = minimum(broadcast<V>(9.0f), abs(x));
    const bits_t<V> n = to_bits(fma(y, broadcast<V>(1.0f / tanh_spacing), broadcast<V>(round_shift<V>)));
    const V r = y - look_up(tanh_points, n);
    const V t = look_up(tanh_values, n);
    const V z = r * r;
    const V q = fma(z, fma(z, broadcast<V>(-0x1.67deccp-6f), broadcast<V>(0x1.55538p-2f)), broadcast<V>(1));
    return with_sign_of(fma(t, q, r) / fma(t, r, q), x);
}
#else
inline constexpr bool has_tanh_table = false;

template <class V>
PATRAC_FN V tanh_by_table(V x);
#endif

}  // namespace patrac::PATRAC_LEVEL
