// Packed data: what the engine reads of the rows, cut into tiles that are each one contiguous stretch of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "../model/plan.hpp"

namespace patrac::PATRAC_LEVEL {

// Zeroed array aligned to a cache line, so that no vector of any level straddles two lines. The rest of its last line
// is zero too: loops over whole vectors may read beyond the end, and may write only zeros there.
template <class T>
class AlignedArray {
public:
    AlignedArray() = default;
    explicit AlignedArray(std::int64_t size) : size_(size) {
        constexpr std::size_t line = 64;
        const std::size_t bytes = (static_cast<std::size_t>(size) * sizeof(T) + line) / line * line;
        data_.reset(static_cast<T*>(std::aligned_alloc(line, bytes)));
        if (!data_) throw std::bad_alloc();
        std::fill_n(data_.get(), bytes / sizeof(T), T(0));
    }
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    std::int64_t size() const { return size_; }
    T& operator[](std::int64_t i) { return data_.get()[i]; }
    const T& operator[](std::int64_t i) const { return data_.get()[i]; }

private:
    struct Free {
        void operator()(T* pointer) const { std::free(pointer); }
    };
    std::unique_ptr<T, Free> data_;
    std::int64_t size_ = 0;
};

// Where each array of a tile starts, in elements. All arrays are node-major: (items, stride), stride rows each.
struct TileLayout {
    std::int64_t stride = 0;              // rows of a tile, a whole number of vectors
    std::vector<std::int64_t> constants;  // by layer: (constant sources, stride); nothing for inputs read in place
    std::vector<std::int64_t> offsets;    // by layer: (offset rows, stride)
    std::int64_t targets = 0;             // (n_targets, stride)
    std::int64_t row_weights = 0;         // (stride,), zero in padding rows
    std::int64_t size = 0;

    // n_targets: m for Gaussian and Bernoulli, 1 for class labels, 0 when only f is wanted.
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
    // As many rows as keep the widest pair of neighbouring layers within L1 with room for the weights, within bounds:
    // wide inputs get at least 96 rows (the sums of a gradient block are worth it), narrow networks at most 256.
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
    std::int64_t n_slabs;  // stretches of tiles that are summed apart, see Evaluator
    AlignedArray<T> values;
    // Inputs that stay where the caller has them, null where the tiles hold them: column j at inputs[j * input_step].
    const T* inputs = nullptr;
    std::int64_t input_step = 0;
    std::shared_ptr<const void> owner;
    AlignedArray<T> last_inputs;  // the last tile's, whose whole vectors would end beyond the caller's array

    PackedData(const Plan& plan, const TileLayout& tile_layout, std::int64_t rows, std::int64_t lane_count)
        : layout(tile_layout),
          n_rows(rows),
          n_tiles((rows + layout.stride - 1) / layout.stride),
          lanes(lane_count),
          n_slabs(slabs(plan, rows, n_tiles)),
          values(n_tiles * layout.size) {}

    // Whether a model can read the inputs where they are: all of them, as they are, with rows side by side.
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
    // A matter of the model and the data alone, so that sums do not depend on the threads that share them. A slab is
    // worth about 50 microseconds of one core, a hundred times what it takes to hand it to a thread that waits.
    static std::int64_t slabs(const Plan& plan, std::int64_t n_rows, std::int64_t n_tiles) {
        constexpr std::int64_t most = 16, multiply_adds = 1'000'000;
        std::int64_t each_row = 1;
        for (const PlanLayer& layer : plan.layers) each_row += layer.n_rows() * layer.n_sources();
        return std::max<std::int64_t>(1, std::min({n_rows * each_row / multiply_adds, most, n_tiles}));
    }
};

}  // namespace patrac::PATRAC_LEVEL
