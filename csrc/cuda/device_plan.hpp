// The plan and its packed data as device functions read them, and where a chain works.
#pragma once

#include <cstdint>

#include "flat_model.hpp"
#include "thread_block.hpp"

namespace patrac::PATRAC_LEVEL {

inline constexpr int most_layers = 16;

// FlatModel's numbers, and pointers to its arrays in memory that every block reads and none writes. Several data sets
// of one plan lie one after the other: what belongs to set d begins at d times the step beside it.
template <class T>
struct DevicePlan {
    Activation activation;
    LikelihoodKind likelihood;
    int dim, n_layers, n_outputs, n_packed, n_value_rows;
    bool keeps_pre;
    FlatLayer layers[most_layers];
    const FlatGradientBlock* blocks;
    const int* indices;
    const int* position;  // (K,)
    const T* packed;      // (n_packed,)
    std::int64_t packed_step;
    const T* tiles;  // (n_tiles, tile_size)
    std::int64_t tiles_step;
    const T* precision;  // (m,)
    // (K,), and ones up to a whole four: C and its root.
    const T *prior_variance, *prior_deviation;
    std::int64_t prior_step;
    const double* constants;  // (2,) for each data set: what l and the log prior hold beside their sums
    int n_rows, n_tiles, tile_size, stride, targets, row_weights;

    // Rows of tile t, up to whole fours: what is beyond n has weight zero.
    PATRAC_DEVICE int padded_rows(int t) const {
        const int left = n_rows - t * stride;
        return ((left < stride ? left : stride) + 3) / 4 * 4;
    }
};

// What one chain works on, in shared memory or, where it does not fit, in its own part of the device's: offsets in
// elements of T.
struct WorkspaceLayout {
    int sums = 0;  // reduction_values doubles
    int packed, theta, gradient, proposed_gradient, momentum, ones, value, pre;
    int size;

    // `persists`: the noise is kept from step to step.
    template <class T>
    static WorkspaceLayout of(const DevicePlan<T>& plan, bool persists) {
        WorkspaceLayout layout{};
        int next = reduction_values * static_cast<int>(sizeof(double) / sizeof(T));
        const auto reserve = [&next](int elements) {
            const int start = next;
            next += (elements + 3) / 4 * 4;
            return start;
        };
        layout.packed = reserve(plan.n_packed);
        layout.theta = reserve(plan.dim);
        layout.gradient = reserve(plan.dim);
        layout.proposed_gradient = reserve(plan.dim);
        layout.momentum = reserve(persists ? plan.dim : 0);
        layout.ones = reserve(plan.stride);
        layout.value = reserve(plan.n_value_rows * plan.stride);
        layout.pre = reserve(plan.keeps_pre ? plan.n_value_rows * plan.stride : 0);
        layout.size = next;
        return layout;
    }
};

}  // namespace patrac::PATRAC_LEVEL
