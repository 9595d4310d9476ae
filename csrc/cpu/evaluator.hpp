// Log-likelihood and gradient over all tiles: passes over slabs of tiles, their totals added in order.
#pragma once

#include <cstdint>

#include "packed.hpp"
#include "tile_pass.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class Evaluator {
public:
    Evaluator(const Plan& plan, const TileLayout& layout) : plan_(plan), pass_(plan, layout), totals_(plan) {}

    // l(theta), and g (K,) unless null.
    double evaluate(const T* theta, const PackedData<T>& data, const LikelihoodTerms<T>& likelihood, T* gradient) {
        pass_.set_theta(theta);
        pass_.evaluate(data, likelihood, 0, data.n_tiles, gradient != nullptr, totals_);
        if (gradient) totals_.gather(plan_, gradient);
        return likelihood.constant + totals_.log_likelihood;
    }

    void predict(const T* theta, const PackedData<T>& data, T* f) {
        pass_.set_theta(theta);
        pass_.predict(data, f);
    }

private:
    const Plan& plan_;  // outlives the evaluator
    TilePass<T> pass_;
    Totals totals_;
};

}  // namespace patrac::PATRAC_LEVEL
