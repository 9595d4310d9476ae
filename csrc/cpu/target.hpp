// What a chain samples: log-likelihood and gradient at a point, from tiles of data or from a quadratic form.
#pragma once

#include <cstdint>

#include "packed.hpp"
#include "../patrac.hpp"
#include "evaluator.hpp"
#include "wide.hpp"

namespace patrac::PATRAC_LEVEL {

// Any model: every evaluation passes over the data. One target serves one thread at a time.
template <class T>
class TileTarget {
public:
    // `threads` of them share an evaluation.
    TileTarget(const Plan& plan, const PackedData<T>& data, const LikelihoodTerms<T>& likelihood, std::int64_t threads)
        : likelihood_(&likelihood), evaluator_(plan, data, threads) {}

    // l(theta), and g (K,) unless null.
    double evaluate(const AlignedArray<T>& theta, AlignedArray<T>* gradient) {
        return evaluator_.evaluate(theta.data(), *likelihood_, gradient ? gradient->data() : nullptr);
    }

private:
    const LikelihoodTerms<T>* likelihood_;
    Evaluator<T> evaluator_;
};

// l(z) = constant + sum_i slope_i z_i - curvature_i z_i^2 / 2: a Gaussian likelihood of the last layer alone, in the
// whitened eigenbasis (docs/method.md, section 6), where a step is O(K) whatever n is.
template <class T>
class QuadraticTarget {
public:
    explicit QuadraticTarget(const Quadratic& form)
        : constant_(form.constant), slope_(std::ssize(form.slope)), curvature_(slope_.size()) {
        std::copy(form.slope.begin(), form.slope.end(), slope_.data());
        std::copy(form.curvature.begin(), form.curvature.end(), curvature_.data());
    }

    double evaluate(const AlignedArray<T>& z, AlignedArray<T>* gradient) const {
        using D = Vec<double>;
        D total = {};
        for (std::int64_t i = 0; i < z.size(); i += lanes_v<D>) {
            const D at = load_wide(z.data() + i), slope = load_wide(slope_.data() + i);
            const D bend = load_wide(curvature_.data() + i) * at;
            total += at * (slope - broadcast<D>(0.5) * bend);
            if (gradient) store_narrow(gradient->data() + i, slope - bend);
        }
        return constant_ + reduce_add(total);
    }

private:
    double constant_;
    AlignedArray<double> slope_, curvature_;
};

}  // namespace patrac::PATRAC_LEVEL
