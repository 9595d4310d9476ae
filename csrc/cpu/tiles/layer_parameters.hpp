// The parameters of one layer, with theta's entries in their places.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/tiles/packed.hpp"
#include "model/plan.hpp"

namespace patrac::PATRAC_LEVEL {

// Parameters of one layer: the plan's array with the Bayesian entries copied in, or a part of theta itself where the
// two have the same entries.
template <class T>
class LayerParameters {
public:
    LayerParameters(const std::vector<double>& fixed, const std::vector<Span>& spans)
        : spans_(&spans), packed_(std::ssize(fixed)) {
        std::transform(fixed.begin(), fixed.end(), packed_.data(), [](double x) { return static_cast<T>(x); });
        in_place_ = spans.size() == 1 && spans.front().length == packed_.size();
        values_ = packed_.data();
    }
    void set_theta(const T* theta) {
        if (in_place_) {
            values_ = theta + spans_->front().theta;
            return;
        }
        for (const Span& span : *spans_) std::copy_n(theta + span.theta, span.length, packed_.data() + span.packed);
    }
    const T* data() const { return values_; }

private:
    const std::vector<Span>* spans_;
    AlignedArray<T> packed_;
    bool in_place_;
    const T* values_;
};

}  // namespace patrac::PATRAC_LEVEL
