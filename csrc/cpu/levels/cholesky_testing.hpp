// The Cholesky routines of collapsed chains on plain matrices, so that tests in Python can reach the code of each
// level.
#pragma once

#include <cstdint>

#include "cpu/chain/cholesky.hpp"

namespace patrac::PATRAC_LEVEL {

// Computes U, A = U'U, W = (U')^-1 and A^-1, all (size, size) with zeros where the factors have them, and returns
// log det A. Of A (size, size) the upper triangle is read.
inline double cholesky(const double* a, std::int64_t size, double* u, double* w, double* inverse) {
    BlockedMatrix factor(size), inverted(size), product(size);
    for (std::int64_t i = 0; i < factor.rows(); ++i) {
        if (i < size)
            std::copy(a + i * size + i, a + (i + 1) * size, factor.row(i) + i);
        else
            factor.row(i)[i] = 1.0;
    }
    const double log_determinant = factorise(factor);
    invert_factor(factor, inverted);
    multiply_factor(inverted, product);
    for (std::int64_t i = 0; i < size; ++i) {
        std::fill_n(u + i * size, i, 0.0);
        std::copy(factor.row(i) + i, factor.row(i) + size, u + i * size + i);
        std::copy_n(inverted.row(i), size, w + i * size);
        std::copy_n(product.row(i), size, inverse + i * size);
    }
    return log_determinant;
}

}  // namespace patrac::PATRAC_LEVEL
