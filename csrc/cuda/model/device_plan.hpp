// The plan and its packed data as device functions read them, and the layout of a chain's workspace.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/block/thread_block.hpp"
#include "cuda/model/flat_collapse.hpp"
#include "cuda/model/data_set.hpp"
#include "shared/host_device.hpp"

namespace patrac::PATRAC_LEVEL {

// The inputs of a wide first layer, see wide_layer.hpp: X (n, padded_features) and X' (features + 1, padded_rows), zero
// beyond the data, the last row of X' ones. Null where the first layer is not wide.
struct WideInputs {
    const void *by_row, *by_feature;
    bool bytes;  // or else floats
    int features, padded_features, padded_rows;
    const int* entry;  // (K,) of each entry of theta among the layer's sums (nodes, sums_pitch), -1 for other layers'

    PATRAC_HOST_DEVICE int sums_pitch() const { return features + 1; }
};

// DataSet's numbers, and pointers to its arrays in memory that every block reads and none writes. Several data sets
// of one plan lie one after the other: what belongs to set d begins at d times the step beside it.
template <class T>
struct DevicePlan {
    Activation activation;
    LikelihoodKind likelihood;
    int dim, n_layers, n_outputs, n_packed, n_value_rows;
    bool keeps_pre;
    FlatLayer layers[max_layers];
    const FlatDenseGradient* gradients;
    const int* indices;
    const int* position;  // (K,)
    const T* packed;      // (n_packed,)
    std::int64_t packed_step;
    const T* tiles;  // (n_tiles, tile_size)
    std::int64_t tiles_step;
    const T* inputs;  // (n_tiles, n_constant, stride) of the first layer; null where no tile reads them
    std::int64_t inputs_step;
    const T* parameters;  // (any, m) of the likelihood
    std::int64_t parameters_step;
    const T* prior_variance;  // (K,), and ones up to a whole four: C
    std::int64_t prior_step;
    WideInputs wide;
    const double* constants;  // (2,) for each data set: what l and the log prior hold beside their sums
    int n_rows, n_tiles, tile_size, stride, targets, row_weights;

    // Rows of tile t, up to whole fours: rows beyond n have weight zero.
    PATRAC_DEVICE int padded_rows(int t) const {
        const int left = n_rows - t * stride;
        return ((left < stride ? left : stride) + 3) / 4 * 4;
    }
};

// FlatCollapse's numbers, with pointers to its arrays on the device and to what each chain keeps.
struct DeviceCollapse {
    int n_features, n_groups, factor_size, alpha_size;
    const FlatCollapseGroup* groups;
    const int *sources, *indices;
    const double* deviation;
    double* kept;  // (chains, factor_size + alpha_size) of the chain's point
    int deviations;

    // Each data set has its own groups and deviations, one after the other; all share the rest.
    PATRAC_DEVICE DeviceCollapse of_set(int set) const {
        DeviceCollapse own = *this;
        own.groups += set * n_groups;
        own.deviation += set * deviations;
        return own;
    }
};

// The workspace of a collapsed target, in elements of T; empty where nothing is collapsed.
struct CollapseLayout {
    int moments;          // (P, P) and (m, P) doubles: Phi'W Phi, and W (y - o) times Phi
    int factor;           // factor_size doubles, then alpha_size: as kept
    int solved;           // alpha_size doubles
    int reverse_weights;  // (n_varying, pitch): of the outputs and, from `feature_column` on, of the features
    int weighted;         // (P, stride) features times row weights
    int pitch, feature_column;
};

// The rows of a second place for derivatives, which those of every second layer take, from the one below the outputs
// on; the others take the rows of the activations above, which are read no more. 0 if those are too few, or there is no
// hidden layer.
template <class T>
int rows_of_reverse(const DevicePlan<T>& plan) {
    int rows = 0;
    bool is_apart = true;
    for (int l = plan.n_layers - 1; l > 0; --l, is_apart = !is_apart) {
        const FlatLayer& layer = plan.layers[l];
        if (is_apart)
            rows = std::max(rows, layer.n_varying);
        else if (layer.n_varying > plan.n_value_rows - layer.value)
            return 0;
    }
    return rows;
}

// The workspace of one chain, in shared memory or, where it does not fit, in the device's: offsets in elements of T.
struct WorkspaceLayout {
    int sums = 0;  // reduction_values doubles
    int packed, theta, gradient, proposed_gradient, momentum, ones, value, pre;
    int spare = -1;  // see TileBlock; -1: the reverse pass works in place
    CollapseLayout collapse;
    int size;

    // Of chains of `dim` coordinates; `persists`: the noise is kept from step to step; `collapse`: null for none.
    template <class T>
    static WorkspaceLayout of(const DevicePlan<T>& plan, int dim, bool persists, const FlatCollapse* collapse) {
        WorkspaceLayout layout{};
        int next = reduction_values * static_cast<int>(sizeof(double) / sizeof(T));
        const auto reserve = [&next](int elements) {
            const int start = next;
            next += (elements + 3) / 4 * 4;
            return start;
        };
        layout.packed = reserve(plan.n_packed);
        layout.theta = reserve(dim);
        layout.gradient = reserve(dim);
        layout.proposed_gradient = reserve(dim);
        layout.momentum = reserve(persists ? dim : 0);
        layout.ones = reserve(plan.stride);
        layout.value = reserve(plan.n_value_rows * plan.stride);
        layout.pre = reserve(plan.keeps_pre ? plan.n_value_rows * plan.stride : 0);
        if (collapse) {
            const int P = collapse->n_features, doubled = static_cast<int>(sizeof(double) / sizeof(T));
            CollapseLayout& own = layout.collapse;
            own.feature_column = (plan.n_outputs + 3) / 4 * 4;
            own.pitch = own.feature_column + (P + 3) / 4 * 4;
            own.moments = reserve(doubled * (P + plan.n_outputs) * P);
            own.factor = reserve(doubled * (collapse->factor_size + collapse->alpha_size));
            own.solved = reserve(doubled * collapse->alpha_size);
            own.reverse_weights = reserve(plan.layers[plan.n_layers - 1].n_varying * own.pitch);
            own.weighted = reserve(P * plan.stride);
        }
        layout.size = next;
        return layout;
    }

    // The same with a second place for derivatives, or as it is if that has no rows or makes it larger than `max_size`.
    template <class T>
    WorkspaceLayout alternating(const DevicePlan<T>& plan, std::int64_t max_size) const {
        const int rows = rows_of_reverse(plan);
        WorkspaceLayout layout = *this;
        layout.spare = size;
        layout.size += (rows * plan.stride + 3) / 4 * 4;
        return rows > 0 && layout.size <= max_size ? layout : *this;
    }
};

}  // namespace patrac::PATRAC_LEVEL
