// Sums over tiles in float64: log-likelihood and gradient, or the moments of a collapsed output layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/tiles/packed.hpp"
#include "cpu/tiles/wide.hpp"
#include "model/plan.hpp"

namespace patrac::PATRAC_LEVEL {

// Log-likelihood and gradient summed over a range of tiles, in float64.
struct Totals {
    double log_likelihood = 0.0;
    std::vector<AlignedArray<double>> dense;  // the plan's dense gradients, layer by layer

    explicit Totals(const Plan& plan) {
        for (const PlanLayer& layer : plan.layers)
            for (const DenseGradient& part : layer.gradient)
                dense.emplace_back(std::ssize(part.rows) * std::ssize(part.sources));
    }

    void add(const Totals& other, bool gradient) {
        log_likelihood += other.log_likelihood;
        if (!gradient) return;
        for (std::size_t b = 0; b < dense.size(); ++b)
            for (std::int64_t i = 0; i < dense[b].size(); ++i) dense[b][i] += other.dense[b][i];
    }

    // To theta's order: the entries of the first n_layers layers.
    template <class T>
    void gather(const Plan& plan, std::size_t n_layers, T* gradient) const {
        auto total = dense.begin();
        for (std::size_t l = 0; l < n_layers; ++l)
            for (const DenseGradient& part : plan.layers[l].gradient) {
                const double* const from = (total++)->data();
                for (const Span& span : part.spans) narrow(from + span.packed, span.length, gradient + span.theta);
            }
    }
};

// The moments that a collapsed output layer needs, summed over a range of tiles: Phi'W Phi and Phi'W (y - o), Phi the
// features, o the outputs without their Bayesian weights, W the row weights or, where each row has a noise variance of
// its own for each output, the row weights over these.
struct Moments {
    AlignedArray<double> gram;   // (1 or m, P, P), on and above the diagonal
    AlignedArray<double> cross;  // (m, P)

    Moments(std::int64_t n_outputs, std::int64_t n_features, std::int64_t n_grams)
        : gram(n_grams * n_features * n_features), cross(n_outputs * n_features) {}

    void add(const Moments& other) {
        for (std::int64_t i = 0; i < gram.size(); ++i) gram[i] += other.gram[i];
        for (std::int64_t i = 0; i < cross.size(); ++i) cross[i] += other.cross[i];
    }
};

}  // namespace patrac::PATRAC_LEVEL
