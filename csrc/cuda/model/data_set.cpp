// Flattens a plan and its data.
#define PATRAC_LEVEL flattening
#define PATRAC_VECTOR_BYTES 16
#include "cuda/model/data_set.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "model/plan.hpp"
#include "model/tile_layout.hpp"
#include "shared/activation.hpp"
#include "shared/likelihood.hpp"

namespace patrac {
namespace {

int narrowed(std::int64_t value, const char* what) {
    if (value > std::numeric_limits<int>::max())
        throw std::invalid_argument(std::string("device: ") + what +
                                    " exceed what a device run can index; use "
                                    "device=\"cpu\"");
    return static_cast<int>(value);
}

std::int64_t up_to_four(std::int64_t count) {
    return (count + 3) / 4 * 4;
}

// An odd number of fours: rows of neighbouring nodes then start in different banks of shared memory.
std::int64_t tile_stride(std::int64_t rows) {
    const std::int64_t fours = (rows + 3) / 4;
    return 4 * (fours + 1 - fours % 2);
}

template <class T>
void flatten_layer(const PlanLayer& layer, DataSet<T>& flat) {
    FlatLayer out{};
    out.n_rows = narrowed(layer.n_rows(), "nodes");
    out.n_varying = narrowed(layer.n_varying(), "nodes");
    out.n_constant = narrowed(layer.n_constant(), "nodes");
    out.constant_column = narrowed(up_to_four(layer.n_varying()), "nodes");
    out.pitch = narrowed(out.constant_column + up_to_four(layer.n_constant()), "nodes");
    const auto start = std::ssize(flat.packed);
    out.weights = narrowed(start, "parameters");
    out.biases = narrowed(start + static_cast<std::int64_t>(out.n_rows) * out.pitch, "parameters");
    flat.packed.resize(static_cast<std::size_t>(up_to_four(out.biases + out.n_rows)));
    const auto column = [&](std::int64_t source) {
        return source < out.n_varying ? source : out.constant_column + source - out.n_varying;
    };
    const auto place = [&](std::int64_t packed) {
        return out.weights + packed / layer.n_sources() * out.pitch + column(packed % layer.n_sources());
    };
    for (std::size_t i = 0; i < layer.weights.size(); ++i)
        flat.packed[static_cast<std::size_t>(place(static_cast<std::int64_t>(i)))] = static_cast<T>(layer.weights[i]);
    for (int r = 0; r < out.n_rows; ++r)
        flat.packed[static_cast<std::size_t>(out.biases + r)] =
            static_cast<T>(layer.biases[static_cast<std::size_t>(r)]);
    for (const Span& span : layer.weight_spans)
        for (std::int64_t i = 0; i < span.length; ++i)
            flat.position[static_cast<std::size_t>(span.theta + i)] = static_cast<int>(place(span.packed + i));
    for (const Span& span : layer.bias_spans)
        for (std::int64_t i = 0; i < span.length; ++i)
            flat.position[static_cast<std::size_t>(span.theta + i)] = static_cast<int>(out.biases + span.packed + i);

    out.value = flat.n_value_rows;
    flat.n_value_rows += out.n_rows;
    out.offset_of_row = narrowed(std::ssize(flat.indices), "indices");
    flat.indices.resize(flat.indices.size() + static_cast<std::size_t>(out.n_rows), -1);
    for (std::size_t o = 0; o < layer.offset_rows.size(); ++o)
        flat.indices[static_cast<std::size_t>(out.offset_of_row + layer.offset_rows[o])] = static_cast<int>(o);

    out.first_gradient = static_cast<int>(flat.gradients.size());
    out.n_gradients = static_cast<int>(layer.gradient.size());
    for (const DenseGradient& dense : layer.gradient) {
        FlatDenseGradient entries{};
        entries.n_rows = static_cast<int>(dense.rows.size());
        entries.n_sources = static_cast<int>(dense.sources.size());
        entries.rows = narrowed(std::ssize(flat.indices), "indices");
        flat.indices.insert(flat.indices.end(), dense.rows.begin(), dense.rows.end());
        entries.sources = narrowed(std::ssize(flat.indices), "indices");
        flat.indices.insert(flat.indices.end(), dense.sources.begin(), dense.sources.end());
        entries.theta = narrowed(std::ssize(flat.indices), "indices");
        flat.indices.resize(flat.indices.size() + dense.rows.size() * dense.sources.size(), -1);
        for (const Span& span : dense.spans)
            for (std::int64_t i = 0; i < span.length; ++i)
                flat.indices[static_cast<std::size_t>(entries.theta + span.packed + i)] =
                    narrowed(span.theta + i, "parameters");
        flat.gradients.push_back(entries);
    }
    flat.layers.push_back(out);
}

}  // namespace

template <class T>
DataSet<T>::DataSet(DataSet&&) noexcept = default;
template <class T>
DataSet<T>::~DataSet() = default;

template <class T>
DataSet<T> flatten(const ModelSpec& spec, const DataView<T>& data, InputSource inputs, std::int64_t workspace_bytes) {
    using namespace flattening;
    DataSet<T> flat(Plan::make(spec.network, spec.companion.has_value()));
    flat.variance = spec.likelihood.noise_variance();
    const Plan& plan = *flat.plan;
    flat.activation = plan.activation;
    flat.likelihood = spec.likelihood.kind;
    flat.dim = narrowed(plan.dim, "parameters");
    flat.n_outputs = narrowed(plan.n_outputs, "outputs");
    visit(plan.activation, [&](auto zeta) { flat.keeps_pre = !decltype(zeta)::from_value; });
    flat.position.resize(static_cast<std::size_t>(plan.dim));
    for (const PlanLayer& layer : plan.layers) flatten_layer(layer, flat);

    for (std::int64_t r = 0; r < data.n_rows; ++r) flat.weight += data.row_weights[r];
    visit(spec.likelihood.kind, [&](auto kind) {
        for (const double value : kind.parameters(spec.likelihood)) flat.parameters.push_back(static_cast<T>(value));
        flat.constant = flat.weight * kind.constant(spec.likelihood);
    });

    // All rows in one tile if they fit, else in the fewest tiles that do.
    const std::int64_t each_row = flat.n_value_rows * (flat.keeps_pre ? 2 : 1) + 1;
    const std::int64_t room = workspace_bytes / static_cast<std::int64_t>(sizeof(T));
    constexpr std::int64_t min_rows = 28, max_rows = 252, max_rows_of_wide = 124;
    std::int64_t fits = (room - flat.chain_elements()) / each_row - 8;
    if (fits < min_rows) fits = std::min(room / each_row - 8, max_rows_of_wide);  // see SlabWorkspace
    fits = std::clamp(fits, min_rows, max_rows);
    std::int64_t tiles = (data.n_rows + fits - 1) / fits;
    if (tiles > max_slabs) tiles = (tiles + max_slabs - 1) / max_slabs * max_slabs;  // as many in each slab
    const TileLayout layout(plan, tile_stride((data.n_rows + tiles - 1) / tiles),
                            targets_per_row(spec.likelihood.kind, plan.n_outputs), true);
    flat.n_rows = narrowed(data.n_rows, "rows");
    flat.n_tiles = narrowed((data.n_rows + layout.stride - 1) / layout.stride, "tiles");
    flat.tile_size = narrowed(layout.size, "values of a tile");
    flat.stride = static_cast<int>(layout.stride);
    flat.targets = static_cast<int>(layout.targets);
    flat.row_weights = static_cast<int>(layout.row_weights);
    for (std::size_t l = 0; l < flat.layers.size(); ++l) {
        flat.layers[l].constants = static_cast<int>(layout.constants[l]);
        flat.layers[l].offsets = static_cast<int>(layout.offsets[l]);
    }
    flat.tiles.resize(static_cast<std::size_t>(flat.n_tiles * layout.size));
    const std::int64_t n_targets = targets_per_row(spec.likelihood.kind, plan.n_outputs);
    for (std::int64_t t = 0; t < flat.n_tiles; ++t) {
        const std::int64_t start = t * layout.stride, rows = std::min(layout.stride, data.n_rows - start);
        fill_targets(data, n_targets, layout, start, rows, up_to_four(rows), flat.tiles.data() + t * layout.size);
    }
    narrowed(plan.layers.front().n_constant() * layout.stride, "inputs of a tile");
    flat.fixed = FixedPart::make(plan, spec);
    flat.inputs = std::move(inputs);
    if (std::is_same_v<T, float> && flat.inputs.matrix.type == InputType::doubles)
        flat.inputs.matrix.type = InputType::rounded_doubles;
    return flat;
}

#define PATRAC_INSTANTIATE(T)   \
    template struct DataSet<T>; \
    template DataSet<T> flatten<T>(const ModelSpec&, const DataView<T>&, InputSource, std::int64_t);
PATRAC_INSTANTIATE(float)
PATRAC_INSTANTIATE(double)
#undef PATRAC_INSTANTIATE

}  // namespace patrac
