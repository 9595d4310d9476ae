// The passes over tiles for collapsed outputs whose noise has a variance for each row (tile_pass.hpp).
//
// With W the row weights over these variances, output by output, M = I + S^(1/2) Phi'W Phi S^(1/2), F'F = S^(1/2) M^-1
// S^(1/2) and t = W^(1/2) F phi of a row, the derivatives of -log|M| / 2 are t't / 2 by s and -W^(1/2) F't by phi. All
// of them are sums of squares or products with F: in S^(1/2) M^-1 S^(1/2) phi the large terms of a row of small
// variance would cancel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "cpu/tiles/tile_pass-inl.hpp"
#include "cpu/tiles/wide.hpp"
#include "shared/elementary.hpp"

namespace patrac::PATRAC_LEVEL {

// Rows of a triangular factor, or columns, that one contraction takes.
inline constexpr std::int64_t factor_block = 16;

// W^(1/2) times the sum.
template <class T>
struct RootedEnds {
    struct Node {
        const T* root;

        template <class W>
        PATRAC_FN W start(std::int64_t) const {
            return W{};
        }
        template <class W>
        PATRAC_FN W result(std::int64_t row, W sum) const {
            return load<W>(root + row) * sum;
        }
    };
    const T* root;

    PATRAC_FN Node at(std::int64_t) const { return {root}; }
};

// What the node has, or zero, less W^(1/2) times the sum.
template <class T>
struct SlopeEnds {
    struct Node {
        const T* root;
        const T* before;

        template <class W>
        PATRAC_FN W start(std::int64_t) const {
            return W{};
        }
        template <class W>
        PATRAC_FN W result(std::int64_t row, W sum) const {
            return load<W>(before + row) - load<W>(root + row) * sum;
        }
    };
    const T* root;
    const T* before;
    std::int64_t step;  // from node to node in `before`

    PATRAC_FN Node at(std::int64_t node) const { return {root, before + node * step}; }
};

// W^(1/2) = exp(-s / 2) times the root of the row weight is finite from half as small an s as W.
template <class X, class V, class Load>
PATRAC_FN V root_at(const X* weight, const X* log_variance, std::int64_t row, const Load& at) {
    return sqrt(at(weight + row)) * exp(broadcast<V>(scalar_t<V>(-0.5)) * at(log_variance + row));
}

template <class T>
void TilePass<T>::find_row_roots() {
    clear_tail_of_outputs();
    const T* const weight = work_.weight;
    for (std::int64_t c = 0; c < by_row_.n_means; ++c) {
        const T* const s = work_.layers.back().value.data() + (by_row_.n_means + c) * work_.stride;
        T* const root = by_row_.root.data() + c * work_.stride;
        for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>)
            store<V>(root + row, root_at<T, V>(weight, s, row,
                                               [](const T* x) __attribute__((always_inline)) { return load<V>(x); }));
    }
}

// Whether the sums over the tile's rows may be in T: each row's share of M has a rounding error of its own, so that
// those of the sums grow with the root of the sum of W^2. False if that is not finite.
template <class T>
bool TilePass<T>::fits_narrow(std::int64_t output, double limit) const {
    if (std::is_same_v<T, double>) return true;
    const T* const root = by_row_.root.data() + output * work_.stride;
    WideSum<T> squares;
    for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>) {
        const V W = load<V>(root + row) * load<V>(root + row);
        squares.add(W * W);
    }
    return squares.total() * static_cast<double>(work_.n_rows) <= limit * limit;
}

template <class T>
template <class X>
void TilePass<T>::moments_of_output(const PackedData<T>& data, std::int64_t output, bool first, RootedRows<X>& rooted,
                                    Moments& moments) {
    using D = Vec<X>;
    using Sums = std::conditional_t<std::is_same_v<X, T>, OuterVec<X>, D>;
    const std::int64_t n_features = work_.collapse->n_features(), stride = work_.stride;
    rooted.reserve(n_features, stride);
    const auto at = [](const T* x) __attribute__((always_inline)) {
        if constexpr (std::is_same_v<X, T>)
            return load<D>(x);
        else
            return load_wide(x);
    };
    const T* const f = work_.layers.back().value.data() + output * stride;
    const T* const target = work_.tile + data.layout.targets + output * stride;
    const T* const weight = work_.weight;
    const std::int64_t end = std::is_same_v<X, T> ? work_.n_vectors * lanes_v<V> : work_.n_rows;
    for (std::int64_t row = 0; row < end; row += lanes_v<D>) {
        const D root = root_at<T, D>(weight, f + by_row_.n_means * stride, row, at);
        X* to = rooted.values.data() + row;
        for (const T* const feature : work_.features) {
            store<D>(to, root * at(feature + row));
            to += stride;
        }
        store<D>(to, root * (at(target + row) - at(f + row)));
    }
    accumulate_outer<X, Sums>(rooted.rows.data() + n_features, 1, rooted.rows.data(), n_features, work_.n_rows,
                              {moments.cross.data() + output * n_features, n_features, 1, first});
    accumulate_upper<X, Sums>(rooted.rows.data(), rooted.rows.data(), n_features, work_.n_rows, first,
                              moments.gram.data() + output * n_features * n_features);
}

template <class T>
[[gnu::noinline]] void TilePass<T>::moments_by_row(const PackedData<T>& data, std::int64_t first_tile,
                                                   std::int64_t end_tile, const double* limits, Moments& moments) {
    visit(work_.plan.activation, [&](auto zeta) {
        for (std::int64_t t = first_tile; t < end_tile; ++t) {
            begin_tile(data, t, first_tile);
            forward<decltype(zeta)>(0, work_.layers.size());
            find_row_roots();
            const bool first = t == first_tile;
            for (std::size_t g = 0; g < work_.collapse->groups.size(); ++g) {
                const std::int64_t output = work_.collapse->groups[g].outputs.front();
                if (fits_narrow(output, limits[g]))
                    moments_of_output<T>(data, output, first, by_row_.rooted, moments);
                else
                    moments_of_output<double>(data, output, first, by_row_.wide, moments);
            }
        }
    });
}

// t of each row, and t't / 2 to the derivative by s.
template <class T>
void TilePass<T>::factor_features(const CollapsedGroup& group, const T* factor, const T* root) {
    const std::int64_t n_features = work_.collapse->n_features(), size = group.size();
    for (std::int64_t i = 0; i < size; i += factor_block) {
        const std::int64_t count = std::min(factor_block, size - i);
        const std::int64_t read = group.features[static_cast<std::size_t>(i + count - 1)] + 1;
        const Sources<T> source{by_row_.features.data(), read, work_.stride};
        const Contraction<T> rows{count,
                                  factor + i * n_features,
                                  n_features,
                                  1,
                                  &source,
                                  1,
                                  by_row_.factored.data() + i * work_.stride,
                                  work_.stride,
                                  work_.n_vectors,
                                  work_.ends_in_half};
        contract(rows, RootedEnds<T>{root});
    }
    T* const slope = work_.layers.back().value.data() + (by_row_.n_means + group.outputs.front()) * work_.stride;
    for (std::int64_t row = 0; row < work_.n_vectors * lanes_v<V>; row += lanes_v<V>) {
        V squares = {};
        for (std::int64_t i = 0; i < size; ++i) {
            const V t = load<V>(by_row_.factored.data() + i * work_.stride + row);
            squares = fma(t, t, squares);
        }
        store<V>(slope + row, fma(broadcast<V>(T(0.5)), squares, load<V>(slope + row)));
    }
}

// -W^(1/2) F't of each row, added to the slopes of the varying features or, for the first output, in their place.
template <class T>
void TilePass<T>::add_feature_slopes(const CollapsedGroup& group, const T* factor, const T* root, bool first) {
    const std::int64_t n_features = work_.collapse->n_features();
    for (std::int64_t f = 0; f < by_row_.n_varying; f += factor_block) {
        // Rows of F whose feature lies before f are zero from there on.
        const std::int64_t skipped =
            std::lower_bound(group.features.begin(), group.features.end(), f) - group.features.begin();
        const Sources<T> source{by_row_.factored.data() + skipped * work_.stride, group.size() - skipped, work_.stride};
        T* const slopes = by_row_.slopes.data() + f * work_.stride;
        const Contraction<T> columns{std::min(factor_block, by_row_.n_varying - f),
                                     factor + skipped * n_features + f,
                                     1,
                                     n_features,
                                     &source,
                                     1,
                                     slopes,
                                     work_.stride,
                                     work_.n_vectors,
                                     work_.ends_in_half};
        contract(columns, SlopeEnds<T>{root, first ? work_.zeros.data() : slopes, first ? 0 : work_.stride});
    }
}

template <class T>
void TilePass<T>::add_determinant_slopes(const T* factors) {
    const std::int64_t n_features = work_.collapse->n_features();
    for (std::int64_t f = 0; f < n_features; ++f)
        std::copy_n(work_.features[static_cast<std::size_t>(f)], work_.n_vectors * lanes_v<V>,
                    by_row_.features.data() + f * work_.stride);
    for (std::size_t g = 0; g < work_.collapse->groups.size(); ++g) {
        const CollapsedGroup& group = work_.collapse->groups[g];
        const T* const root = by_row_.root.data() + group.outputs.front() * work_.stride;
        factor_features(group, factors, root);
        add_feature_slopes(group, factors, root, g == 0);
        factors += n_features * n_features;
    }
}

template <class T>
[[gnu::noinline]] void TilePass<T>::evaluate_collapsed_by_row(const PackedData<T>& data,
                                                              const LikelihoodTerms<T>& likelihood,
                                                              std::int64_t first_tile, std::int64_t end_tile,
                                                              const T* factors, bool hidden_done, Totals& totals) {
    visit(work_.plan.activation, [&](auto zeta) {
        using Zeta = decltype(zeta);
        const std::size_t top = work_.layers.size() - 1;
        const PlanLayer& output = work_.plan.layers[top];
        const std::int64_t n_varying = output.n_varying();
        totals.log_likelihood = 0.0;
        for (std::int64_t t = first_tile; t < end_tile; ++t) {
            begin_tile(data, t, first_tile);
            forward<Zeta>(hidden_done ? top : 0, top + 1);
            if (factors) find_row_roots();
            totals.log_likelihood += likelihood_of_tile(data, likelihood);
            if (!factors) continue;
            add_determinant_slopes(factors);
            add_gradient(top, t == first_tile, totals);
            if (n_varying == 0) continue;
            const LayerWork<T>& work = work_.layers[top];
            const Sources<T> delta{work.value.data(), work_.plan.n_outputs, work_.stride};
            reverse_into<Zeta>(work_.layers[top - 1],
                               {n_varying, work.weights.data(), 1, output.n_sources(), &delta, 1,
                                work_.layers[top - 1].value.data(), work_.stride, work_.n_vectors, work_.ends_in_half},
                               0, RowStarts<T>{by_row_.starts.data()});
            reverse<Zeta>(t == first_tile, totals, top);
        }
    });
}

}  // namespace patrac::PATRAC_LEVEL
