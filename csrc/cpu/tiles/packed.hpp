// Packed data: the rows as the engine reads them, cut into tiles, each one contiguous range of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "cpu/tiles/aligned_array.hpp"
#include "model/data_view.hpp"
#include "model/plan.hpp"
#include "model/tile_layout.hpp"

namespace patrac::PATRAC_LEVEL {

// An array of a tile: item i at base[i * step].
template <class T>
struct TileItems {
    const T* base;
    std::int64_t step;
};

template <class T>
struct PackedData {
    TileLayout layout;
    std::int64_t n_rows;
    std::int64_t n_tiles;
    std::int64_t lanes;
    std::int64_t n_slabs;  // ranges of tiles that are summed separately, see Evaluator
    AlignedArray<T> values;
    // Inputs that stay where the caller has them, null where the tiles hold them: column j at inputs[j * input_step].
    const T* inputs = nullptr;
    std::int64_t input_step = 0;
    std::shared_ptr<const void> owner;
    AlignedArray<T> last_inputs;  // a copy for the last tile, whose whole vectors would end beyond the caller's array

    PackedData(const Plan& plan, const TileLayout& tile_layout, std::int64_t rows, std::int64_t lane_count)
        : layout(tile_layout),
          n_rows(rows),
          n_tiles((rows + layout.stride - 1) / layout.stride),
          lanes(lane_count),
          n_slabs(slabs(plan, rows, n_tiles)),
          values(n_tiles * layout.size) {}

    // Whether a model can read the inputs in place: all are constant sources, and rows are adjacent in memory.
    static bool can_stay(const Plan& plan, const DataView<T>& data) {
        return data.owner && data.row_step == 1 && plan.layers.front().n_constant() == plan.n_inputs;
    }

    // The constant sources of layer l.
    TileItems<T> constants(std::size_t l, std::int64_t t) const {
        if (l > 0 || !inputs) return {tile(t) + layout.constants[l], layout.stride};
        if (t + 1 == n_tiles) return {last_inputs.data(), layout.stride};
        return {inputs + t * layout.stride, input_step};
    }

    T* tile(std::int64_t t) { return values.data() + t * layout.size; }
    const T* tile(std::int64_t t) const { return values.data() + t * layout.size; }
    std::int64_t rows_in_tile(std::int64_t t) const { return std::min(layout.stride, n_rows - t * layout.stride); }
    std::int64_t vectors_in_tile(std::int64_t t) const { return (rows_in_tile(t) + lanes - 1) / lanes; }
    std::int64_t slab_start(std::int64_t s) const { return s * n_tiles / n_slabs; }

private:
    // Depends on the model and the data alone, so that sums do not depend on the number of threads. A slab takes about
    // 50 microseconds of one core, a hundred times the cost of handing it to a waiting thread.
    static std::int64_t slabs(const Plan& plan, std::int64_t n_rows, std::int64_t n_tiles) {
        constexpr std::int64_t most = 16, multiply_adds = 1'000'000;
        std::int64_t each_row = 1;
        for (const PlanLayer& layer : plan.layers) each_row += layer.n_rows() * layer.n_sources();
        return std::max<std::int64_t>(1, std::min({n_rows * each_row / multiply_adds, most, n_tiles}));
    }
};

}  // namespace patrac::PATRAC_LEVEL
