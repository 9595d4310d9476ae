// How the data of a tile of rows lie in memory, on the CPU and on a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/data_view.hpp"
#include "model/plan.hpp"

namespace patrac::PATRAC_LEVEL {

// Where each array of a tile starts, in elements. All arrays are node-major: (items, stride), stride rows each.
struct TileLayout {
    std::int64_t stride = 0;              // rows of a tile, a whole number of vectors
    std::vector<std::int64_t> constants;  // by layer: (constant sources, stride); nothing for inputs read in place
    std::vector<std::int64_t> offsets;    // by layer: (offset rows, stride)
    std::int64_t targets = 0;             // (n_targets, stride)
    std::int64_t row_weights = 0;         // (stride,), zero in padding rows
    std::int64_t size = 0;

    // n_targets: of a row, see targets_per_row(); 0 when only f is wanted.
    TileLayout(const Plan& plan, std::int64_t n_rows, std::int64_t n_targets, std::int64_t lanes,
               std::int64_t element_bytes, bool inputs_in_place = false)
        : TileLayout(plan, tile_rows(plan, n_rows, lanes, element_bytes), n_targets, inputs_in_place) {}

    // Tiles of `tile_stride` rows.
    TileLayout(const Plan& plan, std::int64_t tile_stride, std::int64_t n_targets, bool inputs_in_place)
        : stride(tile_stride) {
        const auto reserve = [this](std::int64_t items) {
            const std::int64_t start = size;
            size += items * stride;
            return start;
        };
        for (const PlanLayer& layer : plan.layers) {
            constants.push_back(reserve(inputs_in_place && constants.empty() ? 0 : layer.n_constant()));
            offsets.push_back(reserve(static_cast<std::int64_t>(layer.offset_rows.size())));
        }
        targets = reserve(n_targets);
        row_weights = reserve(1);
    }

private:
    // As many rows as keep the widest pair of neighbouring layers in L1 beside the weights, within bounds: at least 96
    // rows, which amortise the sums of a dense gradient, and at most 256.
    static std::int64_t tile_rows(const Plan& plan, std::int64_t n_rows, std::int64_t lanes,
                                  std::int64_t element_bytes) {
        constexpr std::int64_t budget = 48 * 1024;
        std::int64_t widest = 1;
        for (const PlanLayer& layer : plan.layers) widest = std::max(widest, layer.n_sources() + layer.n_rows());
        const std::int64_t fits = budget / (widest * element_bytes);
        const std::int64_t rows = std::clamp<std::int64_t>(fits, 96, 256);
        const std::int64_t wanted = std::max<std::int64_t>(1, std::min(rows, n_rows));
        return (wanted + lanes - 1) / lanes * lanes;
    }
};

// Targets and row weights of the tile that begins at row `first` and has `rows` of its own: up to `filled` rows repeat
// the last one's targets and have no weight.
template <class T>
void fill_targets(const DataView<T>& data, std::int64_t n_targets, const TileLayout& layout, std::int64_t first,
                  std::int64_t rows, std::int64_t filled, T* tile) {
    for (std::int64_t c = 0; c < n_targets; ++c)
        for (std::int64_t r = 0; r < filled; ++r)
            tile[layout.targets + c * layout.stride + r] =
                static_cast<T>(data.targets[(first + std::min(r, rows - 1)) * n_targets + c]);
    for (std::int64_t r = 0; r < rows; ++r) tile[layout.row_weights + r] = static_cast<T>(data.row_weights[first + r]);
}

}  // namespace patrac::PATRAC_LEVEL
