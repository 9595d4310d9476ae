// Forward, likelihood and reverse of one tile through equal hidden layers of W nodes, W known to the compiler.
//
// What a tile keeps is vector by vector of rows: the activations of all hidden nodes, then their derivatives.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/tiles/contraction.hpp"
#include "cpu/tiles/wide.hpp"

namespace patrac::PATRAC_LEVEL {

// One tile as the loops below see it. Inputs: column j at inputs + j * input_step; the others (rows,).
template <class T>
struct NarrowTile {
    const T* inputs;
    std::int64_t input_step;
    const T *offset, *target, *weight;
    std::int64_t n_vectors;
};

// Sums over vectors of rows of delta[i] * value[j], i < N, j < J, into weights[i * row + j] and, with `Bias`, of
// delta[i] into biases[i]. Vector k of delta[i] is at delta + (k * step + i) * lanes, of value[j] at value + k *
// value_step + j * column_step.
template <class T, int N, int J, bool Bias>
PATRAC_FN void narrow_outer(const T* delta, std::int64_t step, const T* value, std::int64_t value_step,
                            std::int64_t column_step, std::int64_t n_vectors, std::int64_t row, Vec<T>* weights,
                            Vec<T>* biases) {
    using V = Vec<T>;
    constexpr std::int64_t lanes = lanes_v<V>;
    V sum[N][J] = {}, bias[N] = {};
    for (std::int64_t k = 0; k < n_vectors; ++k, delta += step * lanes, value += value_step) {
        V d[N];
        unrolled<N>([&](int i) __attribute__((always_inline)) {
            d[i] = load<V>(delta + i * lanes);
            if constexpr (Bias) bias[i] += d[i];
        });
        unrolled<J>([&](int j) __attribute__((always_inline)) {
            const V x = load<V>(value + j * column_step);
            unrolled<N>([&](int i) __attribute__((always_inline)) { sum[i][j] = fma(d[i], x, sum[i][j]); });
        });
    }
    unrolled<N>([&](int i) __attribute__((always_inline)) {
        unrolled<J>([&](int j) __attribute__((always_inline)) { weights[i * row + j] = sum[i][j]; });
        if constexpr (Bias) biases[i] = bias[i];
    });
}

// The same for W x W weights and W biases, as many rows at a time as registers hold.
template <class T, int W, int First = 0>
PATRAC_FN void narrow_square(const T* delta, const T* value, std::int64_t step, std::int64_t n_vectors, Vec<T>* weights,
                             Vec<T>* biases) {
    constexpr int most = std::max(1, (registers - 2) / (W + 2)), count = std::min(most, W - First);
    if constexpr (count > 0) {
        constexpr std::int64_t lanes = lanes_v<Vec<T>>;
        narrow_outer<T, count, W, true>(delta + First * lanes, step, value, step * lanes, lanes, n_vectors, W,
                                        weights + First * W, biases + First);
        narrow_square<T, W, First + count>(delta, value, step, n_vectors, weights, biases);
    }
}

// `n_inputs` inputs, `n_hidden` layers of W nodes, one output. theta is (weights row by row, biases) of each layer.
template <class T, int W, class Zeta>
class NarrowLoop {
public:
    using V = Vec<T>;
    static constexpr std::int64_t lanes = lanes_v<V>;
    static constexpr int width = W;

    NarrowLoop(std::int64_t n_inputs, std::int64_t n_hidden) : n_inputs_(n_inputs), n_hidden_(n_hidden) {}

    // Vectors kept of each vector of rows: activations layer by layer, then derivatives, last that of the output.
    std::int64_t kept() const { return 2 * n_hidden_ * W + 1; }

    // The log-likelihood of a tile, without its constant, and, unless `sums` is null, the vectors (K,) whose sums over
    // lanes are its gradient. kept (n_vectors, kept()) vectors.
    double evaluate(const NarrowTile<T>& tile, const T* theta, T precision, T* kept, V* sums) const {
        forward(tile, theta, kept);
        const double log_likelihood = last_layer(tile, output(theta), precision, last_hidden(kept), sums != nullptr);
        if (!sums) return log_likelihood;
        reverse(tile, theta, kept, sums);
        narrow_outer<T, 1, W, true>(last_hidden(kept) + (n_hidden_ + 1) * W * lanes, this->kept(), last_hidden(kept),
                                    this->kept() * lanes, lanes, tile.n_vectors, W, sums + hidden_dim(),
                                    sums + hidden_dim() + W);
        return log_likelihood;
    }

    // Parameters below the output layer, whose own are (weights (W,), bias).
    std::int64_t hidden_dim() const { return W * (n_inputs_ + 1) + (n_hidden_ - 1) * W * (W + 1); }
    const T* output(const T* theta) const { return theta + hidden_dim(); }

    // Of the first vector of rows: the activations of the last hidden layer, and where reverse() expects dl/d(its
    // pre-activation).
    T* last_hidden(T* kept) const { return kept + (n_hidden_ - 1) * W * lanes; }
    T* last_delta(T* kept) const { return kept + (2 * n_hidden_ - 1) * W * lanes; }

    // The hidden activations. Layer by layer: within a layer the processor overlaps several vectors of rows, while one
    // vector through all layers is a chain of dependent operations longer than its reorder window.
    void forward(const NarrowTile<T>& tile, const T* theta, T* kept) const {
        const T* bias = theta + W * n_inputs_;
        first_layer(tile, theta, bias, kept);
        for (std::int64_t l = 1; l < n_hidden_; ++l, kept += W * lanes) {
            next_layer(tile, bias + W, kept);
            bias += W * (W + 1);
        }
    }

    // From last_delta() down: the vectors (hidden_dim(),) whose sums over lanes are the gradient below the output
    // layer.
    void reverse(const NarrowTile<T>& tile, const T* theta, T* kept, V* sums) const {
        const T* weight = output(theta) - W * (W + 1);
        for (std::int64_t l = n_hidden_; --l > 0; weight -= W * (W + 1))
            reverse_layer(tile, weight, kept + l * W * lanes);
        gradient(tile, kept, sums);
    }

private:
    // `kept` points at the activations of the layer in question, for next_layer() and reverse_layer() of the one below.
    void first_layer(const NarrowTile<T>& tile, const T* weight, const T* bias, T* kept) const {
        for (std::int64_t k = 0; k < tile.n_vectors; ++k, kept += this->kept() * lanes) {
            V z[W];
            unrolled<W>([&](int i) __attribute__((always_inline)) { z[i] = broadcast<V>(bias[i]); });
            for (std::int64_t j = 0; j < n_inputs_; ++j) {
                const V x = load<V>(tile.inputs + j * tile.input_step + k * lanes);
                unrolled<W>([&](int i) __attribute__((always_inline)) {
                    z[i] = fma(broadcast<V>(weight[i * n_inputs_ + j]), x, z[i]);
                });
            }
            unrolled<W>([&](int i) __attribute__((always_inline)) { store<V>(kept + i * lanes, Zeta::value(z[i])); });
        }
    }

    // weight (W, W), then the biases.
    void next_layer(const NarrowTile<T>& tile, const T* weight, T* kept) const {
        for (std::int64_t k = 0; k < tile.n_vectors; ++k, kept += this->kept() * lanes) {
            V a[W];
            unrolled<W>([&](int j) __attribute__((always_inline)) { a[j] = load<V>(kept + j * lanes); });
            unrolled<W>([&](int i) __attribute__((always_inline)) {
                V z = broadcast<V>(weight[W * W + i]);
                unrolled<W>([&](int j)
                                __attribute__((always_inline)) { z = fma(broadcast<V>(weight[i * W + j]), a[j], z); });
                store<V>(kept + (W + i) * lanes, Zeta::value(z));
            });
        }
    }

    // The output, its likelihood, and dl/d(pre-activation) of it and of the layer below.
    double last_layer(const NarrowTile<T>& tile, const T* weight, T precision, T* kept, bool reverse) const {
        const V scale = broadcast<V>(precision);
        WideSum<T> total;
        for (std::int64_t k = 0; k < tile.n_vectors; ++k, kept += this->kept() * lanes) {
            V f = broadcast<V>(weight[W]) + load<V>(tile.offset + k * lanes);
            unrolled<W>([&](int i) __attribute__((always_inline)) {
                f = fma(broadcast<V>(weight[i]), load<V>(kept + i * lanes), f);
            });
            const V residual = load<V>(tile.target + k * lanes) - f;
            const V slope = load<V>(tile.weight + k * lanes) * scale * residual;
            total.add(broadcast<V>(T(-0.5)) * residual * slope);
            if (!reverse) continue;
            T* const delta = kept + n_hidden_ * W * lanes;
            store<V>(delta + W * lanes, slope);
            unrolled<W>([&](int i) __attribute__((always_inline)) {
                const V a = load<V>(kept + i * lanes);
                store<V>(delta + i * lanes, broadcast<V>(weight[i]) * slope * Zeta::derivative(a));
            });
        }
        return total.total();
    }

    // dl/d(pre-activation) of the layer below from that of the layer in question, through weight (W, W).
    void reverse_layer(const NarrowTile<T>& tile, const T* weight, T* kept) const {
        T* below = kept - W * lanes;
        T* delta = below + n_hidden_ * W * lanes;
        const std::int64_t step = this->kept() * lanes;
        for (std::int64_t k = 0; k < tile.n_vectors; ++k, below += step, delta += step) {
            V d[W];
            unrolled<W>([&](int i) __attribute__((always_inline)) { d[i] = load<V>(delta + (W + i) * lanes); });
            unrolled<W>([&](int j) __attribute__((always_inline)) {
                V sum = broadcast<V>(weight[j]) * d[0];
                unrolled<W - 1>([&](int i) __attribute__((always_inline)) {
                    sum = fma(broadcast<V>(weight[(i + 1) * W + j]), d[i + 1], sum);
                });
                store<V>(delta + j * lanes, sum * Zeta::derivative(load<V>(below + j * lanes)));
            });
        }
    }

    // Of the hidden layers, layer by layer from what was kept.
    void gradient(const NarrowTile<T>& tile, const T* kept, V* sums) const {
        const std::int64_t step = this->kept(), n_vectors = tile.n_vectors;
        const T* value = kept;
        const T* delta = kept + n_hidden_ * W * lanes;
        V* bias = sums + W * n_inputs_;
        narrow_outer<T, W, 1, true>(delta, step, tile.inputs, lanes, 0, n_vectors, n_inputs_, sums, bias);
        for (std::int64_t j = 1; j < n_inputs_; ++j)
            narrow_outer<T, W, 1, false>(delta, step, tile.inputs + j * tile.input_step, lanes, 0, n_vectors, n_inputs_,
                                         sums + j, bias);
        for (std::int64_t l = 1; l < n_hidden_; ++l, value += W * lanes) {
            V* const weights = bias + W;
            bias = weights + W * W;
            delta += W * lanes;
            narrow_square<T, W>(delta, value, step, n_vectors, weights, bias);
        }
    }

    std::int64_t n_inputs_, n_hidden_;
};

}  // namespace patrac::PATRAC_LEVEL
