// The network as plain arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "shared/activation.hpp"

namespace patrac {

// One layer of weights; a mask entry of 1 marks a Bayesian parameter.
struct Layer {
    std::int64_t n_out = 0;
    std::int64_t n_in = 0;
    std::vector<double> weights;            // (n_out, n_in) row-major; trained values
    std::vector<double> biases;             // (n_out,)
    std::vector<std::uint8_t> weight_mask;  // (n_out, n_in)
    std::vector<std::uint8_t> bias_mask;    // (n_out,)
};

struct Network {
    Activation activation = Activation::tanh;
    std::vector<Layer> layers;  // hidden layers, then the output layer

    std::int64_t n_inputs() const { return layers.front().n_in; }
    std::int64_t n_outputs() const { return layers.back().n_out; }
};

}  // namespace patrac
