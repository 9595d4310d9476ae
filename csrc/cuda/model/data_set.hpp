// A model as flat arrays, which are copied to a device's memory unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/model/input_matrix.hpp"
#include "model/data_view.hpp"
#include "model/fixed_part.hpp"
#include "model/model_spec.hpp"
#include "model/plan.hpp"
#include "shared/activation.hpp"
#include "shared/likelihood.hpp"

namespace patrac {

// Where the arrays of a dense gradient lie in DataSet::indices, see DenseGradient.
struct FlatDenseGradient {
    int n_rows, n_sources;
    int rows;     // (n_rows,) positions in the layer's rows
    int sources;  // (n_sources,) positions in its sources; one past the last is the 1 that biases multiply
    int theta;    // (n_rows, n_sources) index of theta, -1 where the entry is fixed
};

// One layer, see PlanLayer. A row of packed weights holds the varying sources, up to a whole four, then the constants.
struct FlatLayer {
    int n_rows, n_varying, n_constant;
    int constant_column;  // of packed weights, where the constants begin
    int pitch;            // of packed weights, a multiple of four
    int weights, biases;  // in the packed parameters
    int value;            // first row of the layer among all layers' rows
    int constants;        // in a tile: (n_constant, stride); of the first layer see DevicePlan::inputs
    int offsets;          // in a tile: (offset rows, stride)
    int offset_of_row;    // in indices: (n_rows,) which offset, -1 for none
    int first_gradient, n_gradients;
};

// Largest number of slabs, ranges of tiles that are summed separately where blocks share an evaluation: twice the
// multiprocessors of the largest devices today, and the same on every device.
inline constexpr int max_slabs = 264;

// Largest number of layers of a network on a device: the plan is an argument of every launch.
inline constexpr int max_layers = 16;

template <class T>
struct DataSet {
    std::shared_ptr<const Plan> plan;  // that was flattened
    std::vector<double> variance;      // (m,) of the noise, Gaussian
    Activation activation = Activation::tanh;
    LikelihoodKind likelihood = LikelihoodKind::gaussian;
    int dim = 0;  // K
    int n_outputs = 0;
    int n_value_rows = 0;    // rows of all layers
    bool keeps_pre = false;  // the activation's derivative needs its argument
    std::vector<FlatLayer> layers;
    std::vector<FlatDenseGradient> gradients;
    std::vector<int> indices;
    std::vector<int> position;  // (K,) of theta in the packed parameters
    std::vector<T> packed;      // fixed parameters, Bayesian entries zero
    std::vector<T> parameters;  // (any, m) of the likelihood, see shared/likelihood.hpp
    double constant = 0.0;      // the part of l that is not a sum over rows
    double weight = 0.0;        // the sum of the row weights

    int n_rows = 0;  // n
    int n_tiles = 0, tile_size = 0, stride = 0;
    int targets = 0, row_weights = 0;  // in a tile
    std::vector<T> tiles;              // (n_tiles, tile_size): targets and row weights; a device fills in the rest
    FixedPart fixed;                   // maps that a device folds into constants and offsets
    InputSource inputs;                // inputs to which it applies them

    explicit DataSet(Plan of) : plan(std::make_shared<Plan>(std::move(of))) {}
    DataSet(DataSet&&) noexcept;
    ~DataSet();

    // Elements of T that one chain works on, beside those for each row of a tile, see WorkspaceLayout.
    std::int64_t chain_elements() const { return static_cast<std::int64_t>(packed.size()) + 4LL * dim; }
};

template <class T>
using DataSets = std::vector<std::shared_ptr<const DataSet<T>>>;

// Of `data` targets and row weights are read, and as many rows of `inputs`, which the data set holds on to.
//
// Tiles hold as many rows as let a chain's work fit `workspace_bytes`, if any number does, else as many as let the
// activations fit.
template <class T>
DataSet<T> flatten(const ModelSpec& spec, const DataView<T>& data, InputSource inputs, std::int64_t workspace_bytes);

}  // namespace patrac
