// Workspace for collapsed outputs whose noise has a variance for each row, e^s, s another output of the network.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/tiles/aligned_array.hpp"
#include "model/collapse.hpp"
#include "model/plan.hpp"

namespace patrac::PATRAC_LEVEL {

// The features and the residual of one output, times W^(1/2).
template <class X>
struct RootedRows {
    AlignedArray<X> values;      // (P + 1, stride)
    std::vector<const X*> rows;  // (P + 1,): the features, then the residual

    // Allocates at the first call.
    void reserve(std::int64_t n_features, std::int64_t stride) {
        if (!rows.empty()) return;
        values = AlignedArray<X>((n_features + 1) * stride);
        for (std::int64_t i = 0; i <= n_features; ++i) rows.push_back(values.data() + i * stride);
    }
};

template <class T>
struct RowVariances {
    std::int64_t n_means = 0;      // c: the means are outputs 0 .. c - 1, and s of output i is output c + i
    std::int64_t n_varying = 0;    // of the features, the first
    AlignedArray<T> root;          // (c, stride): W^(1/2), W the row weight times e^-s
    RootedRows<T> rooted;          // of the moments
    RootedRows<double> wide;       // the same in float64
    AlignedArray<T> features;      // (P, stride)
    AlignedArray<T> factored;      // (P, stride): W^(1/2) F phi of one output
    AlignedArray<T> slopes;        // (varying features, stride): of the sum of -log|M| / 2 over the outputs
    std::vector<const T*> starts;  // (varying sources of the output layer,): its row of slopes, or zeros

    RowVariances() = default;
    // zeros (stride,) outlives the workspace.
    RowVariances(const Plan& plan, const CollapsePlan& collapse, std::int64_t stride, const T* zeros)
        : n_means(plan.n_outputs / 2) {
        const std::int64_t n_features = collapse.n_features(), n_sources = plan.layers.back().n_varying();
        while (n_varying < n_features && collapse.sources[static_cast<std::size_t>(n_varying)] < n_sources) ++n_varying;
        root = AlignedArray<T>(n_means * stride);
        features = AlignedArray<T>(n_features * stride);
        factored = AlignedArray<T>(n_features * stride);
        slopes = AlignedArray<T>(n_varying * stride);
        starts.assign(static_cast<std::size_t>(n_sources), zeros);
        for (std::int64_t f = 0; f < n_varying; ++f)
            starts[static_cast<std::size_t>(collapse.sources[static_cast<std::size_t>(f)])] =
                slopes.data() + f * stride;
    }
};

}  // namespace patrac::PATRAC_LEVEL
