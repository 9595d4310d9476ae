// The part of a network that does not depend on theta: affine maps over nodes that are constants of the data.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_spec.hpp"
#include "model/plan.hpp"

namespace patrac {

// out = bias + weights * below, over all nodes of the layer below.
struct FixedMap {
    std::vector<std::int32_t> nodes;  // which nodes of the layer the rows of `weights` are
    std::vector<double> weights;      // (nodes, n_in); zero where the weight is Bayesian or its source varies
    std::vector<double> biases;       // (nodes,)
    std::int64_t n_in = 0;
};

// By layer.
struct FixedPart {
    std::vector<FixedMap> offsets;    // into the rows that have one, without activation; biases are the engine's
    std::vector<FixedMap> constants;  // into the constant nodes, none in the output layer
    std::vector<FixedMap> companion;  // the companion network of Sep, all of it; or nothing
    Activation companion_activation = Activation::tanh;

    FixedPart() = default;
    // Out of line, as Plan's.
    FixedPart(FixedPart&&) noexcept;
    FixedPart& operator=(FixedPart&&) noexcept;
    ~FixedPart();

    static FixedPart make(const Plan& plan, const ModelSpec& spec);
};

}  // namespace patrac
