// The plan: which nodes vary with theta, what is a constant of the data, and where each entry of theta goes.
#pragma once

#include <cstdint>
#include <vector>

#include "model/layer_report.hpp"
#include "model/network.hpp"

namespace patrac {

// `length` consecutive entries of theta <-> consecutive entries of a packed array.
struct Span {
    std::int64_t theta;
    std::int64_t packed;
    std::int64_t length;
};

// A dense part of a layer's gradient; spans gather it, row-major, into theta's order.
struct DenseGradient {
    std::vector<std::int32_t> rows;     // positions in the layer's rows
    std::vector<std::int32_t> sources;  // positions in its sources; one past the last is the 1 that biases multiply
    std::vector<Span> spans;
};

// One layer as the engine sees it. Positions count within the lists below, nodes count within the ranked layer.
//
// The packed weight matrix is (rows, sources) row-major with sources = varying nodes of the layer below, then constant
// sources. An entry holds a Bayesian weight (copied from theta each time), a fixed weight out of a varying node, or
// zero: a fixed weight out of a constant source is folded into the offset of its row.
struct PlanLayer {
    std::vector<std::int32_t> rows;              // nodes evaluated: the varying ones; in the output layer all
    std::vector<std::int32_t> varying_sources;   // = rows of the layer below (none for layer 1)
    std::vector<std::int32_t> constant_sources;  // constant nodes (layer 1: inputs) with a Bayesian weight into `rows`
    std::vector<std::int32_t> offset_rows;       // positions in `rows` that read a constant through a fixed weight

    std::vector<double> weights;  // (rows, sources), Bayesian entries zero
    std::vector<double> biases;   // (rows,), Bayesian entries zero
    std::vector<Span> weight_spans;
    std::vector<Span> bias_spans;

    // Together they cover every Bayesian entry: one for all, or one for weights and one for biases.
    std::vector<DenseGradient> gradient;

    std::int64_t n_rows() const { return static_cast<std::int64_t>(rows.size()); }
    std::int64_t n_varying() const { return static_cast<std::int64_t>(varying_sources.size()); }
    std::int64_t n_constant() const { return static_cast<std::int64_t>(constant_sources.size()); }
    std::int64_t n_sources() const { return n_varying() + n_constant(); }
};

struct Plan {
    Activation activation = Activation::tanh;
    std::int64_t dim = 0;  // K
    std::int64_t n_inputs = 0;
    std::int64_t n_outputs = 0;
    std::vector<PlanLayer> layers;

    Plan() = default;
    // Out of line, so that no instruction-set level emits copies of its own.
    Plan(Plan&&) noexcept;
    ~Plan();

    static Plan make(const Network& network, bool has_companion);
    std::vector<LayerReport> report(const Network& network) const;
};

}  // namespace patrac
