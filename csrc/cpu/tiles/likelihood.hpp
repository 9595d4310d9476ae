// Log-likelihood of a tile and its derivative with respect to the outputs (docs/method.md, section 5).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "cpu/tiles/wide.hpp"
#include "model/network.hpp"
#include "shared/elementary.hpp"

namespace patrac::PATRAC_LEVEL {

// l of `terms` Gaussian terms of one variance: -terms/2 log(2 pi variance) - sum of squares / (2 variance).
struct GaussianTerms {
    double terms;

    double constant(double variance) const { return -0.5 * terms * std::log(2.0 * std::numbers::pi * variance); }
    double sum_of_squares(double log_likelihood, double variance) const {
        return 2.0 * variance * (constant(variance) - log_likelihood);
    }
    double rescaled(double log_likelihood, double from, double to) const {
        return constant(to) - 0.5 * sum_of_squares(log_likelihood, from) / to;
    }
};

// The likelihood with its constants in the engine's terms.
template <class T>
struct LikelihoodTerms {
    LikelihoodKind kind;
    std::vector<T> precision;  // (m,), Gaussian
    double constant = 0.0;     // what the tiles leave out of the normalised log-likelihood
    double terms = 0.0;        // Gaussian: outputs times the sum of row weights

    // One noise variance for all outputs.
    void set_variance(double variance) {
        std::fill(precision.begin(), precision.end(), static_cast<T>(1.0 / variance));
        constant = GaussianTerms{terms}.constant(variance);
    }
};

// Outputs f, derivatives delta and targets are node-major (m or 1, stride); `weight` (stride,) is the factor of each
// row, zero in padding. Each function returns sum_r weight_r l_r without the Gaussian constant and writes delta[c][r] =
// weight_r dl_r/df_c. delta may be f itself.
template <class T>
struct OutputTile {
    const T* f;
    T* delta;
    const T* target;
    const T* weight;
    std::int64_t n_outputs;
    std::int64_t stride;
    std::int64_t n_vectors;
};

// l = -(y - f)^2 / (2 variance), summed over outputs; precision (m,) = 1 / variance.
template <class T>
double gaussian_tile(const OutputTile<T>& tile, const T* precision) {
    using V = Vec<T>;
    WideSum<T> total;
    for (std::int64_t c = 0; c < tile.n_outputs; ++c) {
        const V scale = broadcast<V>(precision[c]);
        for (std::int64_t k = 0; k < tile.n_vectors; ++k) {
            const std::int64_t at = c * tile.stride + k * lanes_v<V>;
            const V residual = load<V>(tile.target + at) - load<V>(tile.f + at);
            const V slope = load<V>(tile.weight + k * lanes_v<V>) * scale * residual;
            store<V>(tile.delta + at, slope);
            total.add(broadcast<V>(T(-0.5)) * residual * slope);
        }
    }
    return total.total();
}

// l = f_y - log sum_c exp f_c; target holds the label as a number of type T, exact below 2^24.
template <class T>
double categorical_tile(const OutputTile<T>& tile) {
    using V = Vec<T>;
    WideSum<T> total;
    for (std::int64_t k = 0; k < tile.n_vectors; ++k) {
        const std::int64_t row = k * lanes_v<V>;
        const V label = load<V>(tile.target + row);
        const V weight = load<V>(tile.weight + row);
        V top = load<V>(tile.f + row);
        for (std::int64_t c = 1; c < tile.n_outputs; ++c) top = maximum(load<V>(tile.f + c * tile.stride + row), top);
        V sum = {};
        V chosen = {};
        for (std::int64_t c = 0; c < tile.n_outputs; ++c) {
            const V centred = load<V>(tile.f + c * tile.stride + row) - top;
            const V e = exp(centred);
            chosen = select(label == broadcast<V>(static_cast<T>(c)), centred, chosen);
            store<V>(tile.delta + c * tile.stride + row, e);
            sum += e;
        }
        const V inverse = broadcast<V>(1) / sum;
        for (std::int64_t c = 0; c < tile.n_outputs; ++c) {
            T* delta = tile.delta + c * tile.stride + row;
            const V hit = select(label == broadcast<V>(static_cast<T>(c)), broadcast<V>(1), broadcast<V>(0));
            store<V>(delta, weight * (hit - load<V>(delta) * inverse));
        }
        total.add(weight * (chosen - log(sum)));
    }
    return total.total();
}

// l = -log(1 + exp(s f)), s = 1 - 2y, summed over outputs, y in {0, 1}: the form that does not cancel for y = 1.
template <class T>
double bernoulli_tile(const OutputTile<T>& tile) {
    using V = Vec<T>;
    WideSum<T> total;
    for (std::int64_t c = 0; c < tile.n_outputs; ++c) {
        for (std::int64_t k = 0; k < tile.n_vectors; ++k) {
            const std::int64_t at = c * tile.stride + k * lanes_v<V>;
            const V f = load<V>(tile.f + at);
            const V sign = broadcast<V>(1) - broadcast<V>(2) * load<V>(tile.target + at);
            const V weight = load<V>(tile.weight + k * lanes_v<V>);
            total.add(-weight * softplus(sign * f));
            store<V>(tile.delta + at, -weight * sign * sigmoid(sign * f));
        }
    }
    return total.total();
}

}  // namespace patrac::PATRAC_LEVEL
