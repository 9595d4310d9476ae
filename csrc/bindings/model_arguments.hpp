// What a model is made of, as Python gives it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "patrac.hpp"

namespace patrac::bindings {

inline const std::map<std::string, Activation> activations = {{"tanh", Activation::tanh},
                                                              {"relu", Activation::relu},
                                                              {"gelu", Activation::gelu},
                                                              {"silu", Activation::silu},
                                                              {"sigmoid", Activation::sigmoid}};
inline const std::map<std::string, LikelihoodKind> likelihoods = {{"gaussian", LikelihoodKind::gaussian},
                                                                  {"categorical", LikelihoodKind::categorical},
                                                                  {"bernoulli", LikelihoodKind::bernoulli}};
inline const std::map<std::string, KernelKind> kernels = {{"pcn", KernelKind::pcn},
                                                          {"pcnl", KernelKind::pcnl},
                                                          {"mgrad", KernelKind::mgrad},
                                                          {"elliptical_slice", KernelKind::elliptical_slice},
                                                          {"exact", KernelKind::exact}};

template <class Enum>
Enum named(const std::map<std::string, Enum>& names, const std::string& name) {
    const auto found = names.find(name);
    require(found != names.end(), ("unknown name '" + name + "'").c_str());
    return found->second;
}

using Arrays = std::vector<Array<double>>;
using Masks = std::vector<Array<bool>>;

inline Network make_network(const std::string& activation, const Arrays& weights, const Arrays& biases,
                            const Masks* weight_masks, const Masks* bias_masks) {
    Network network;
    network.activation = named(activations, activation);
    require(!weights.empty() && weights.size() == biases.size(), "one weight matrix and bias vector for each layer");
    require(!weight_masks || (weight_masks->size() == weights.size() && bias_masks->size() == weights.size()),
            "one mask for each weight matrix and bias vector");
    for (std::size_t l = 0; l < weights.size(); ++l) {
        require(weights[l].ndim() == 2 && biases[l].ndim() == 1 && biases[l].shape(0) == weights[l].shape(0),
                "weights (N_l, N_l-1) and biases (N_l,)");
        require(l == 0 || weights[l].shape(1) == weights[l - 1].shape(0), "layers that follow on each other");
        Layer layer;
        layer.n_out = weights[l].shape(0);
        layer.n_in = weights[l].shape(1);
        layer.weights = to_vector(weights[l]);
        layer.biases = to_vector(biases[l]);
        layer.weight_mask.assign(layer.weights.size(), 0);
        layer.bias_mask.assign(layer.biases.size(), 0);
        if (weight_masks) {
            const auto& weight_mask = (*weight_masks)[l];
            const auto& bias_mask = (*bias_masks)[l];
            require(weight_mask.size() == weights[l].size() && bias_mask.size() == biases[l].size(), "mask shape");
            layer.weight_mask.assign(weight_mask.data(), weight_mask.data() + weight_mask.size());
            layer.bias_mask.assign(bias_mask.data(), bias_mask.data() + bias_mask.size());
        }
        network.layers.push_back(std::move(layer));
    }
    return network;
}

// Keeps a Python object until the last copy of the pointer is gone, in whatever thread that is.
inline std::shared_ptr<const void> hold(const py::object& object) {
    return {new py::object(object), [](const void* held) {
                const py::gil_scoped_acquire gil;
                delete static_cast<const py::object*>(held);
            }};
}

// Network, likelihood and data but for the inputs; the views borrow from the arrays, which the caller holds.
template <class T>
struct ModelArguments {
    Network network;
    std::optional<Network> companion;
    Likelihood likelihood;
    DataView<T> data;

    ModelArguments(const std::string& activation, const Arrays& weights, const Arrays& biases,
                   const Masks& weight_masks, const Masks& bias_masks,
                   const std::optional<std::pair<Arrays, Arrays>>& fixed, const std::string& likelihood_name,
                   const Array<double>& variance, const Array<double>& targets, const Array<double>& row_weights)
        : network(make_network(activation, weights, biases, &weight_masks, &bias_masks)),
          likelihood{named(likelihoods, likelihood_name), to_vector(variance)},
          data{.n_rows = row_weights.size(), .targets = targets.data(), .row_weights = row_weights.data()} {
        if (fixed) companion = make_network(activation, fixed->first, fixed->second, nullptr, nullptr);
        require(!companion ||
                    (companion->n_inputs() == network.n_inputs() && companion->n_outputs() == network.n_outputs()),
                "companion of the same inputs and outputs");
        require(targets.size() == data.n_rows * targets_per_row(likelihood.kind, network.n_outputs()), "targets shape");
        require(likelihood.kind != LikelihoodKind::gaussian || variance.size() == network.n_outputs(),
                "variance shape");
    }

    // Inputs (n, d) of the model's type or bytes; with `in_place` the model may hold them.
    void set_inputs(const py::array& inputs, bool in_place) {
        require(inputs.ndim() == 2, "inputs shape");
        check_shape(inputs.shape(0), inputs.shape(1));
        const bool bytes = py::isinstance<py::array_t<std::uint8_t>>(inputs);
        require(bytes || py::isinstance<py::array_t<T>>(inputs), "inputs of the model's type or bytes");
        const py::ssize_t size = inputs.itemsize();
        require(inputs.strides(0) % size == 0 && inputs.strides(1) % size == 0, "aligned inputs");
        if (bytes)
            data.byte_inputs = static_cast<const std::uint8_t*>(inputs.data());
        else
            data.inputs = static_cast<const T*>(inputs.data());
        data.row_step = inputs.strides(0) / size;
        data.column_step = inputs.strides(1) / size;
        if (in_place && !bytes) data.owner = hold(inputs);
    }
    void check_shape(std::int64_t rows, std::int64_t columns) const {
        require(rows == data.n_rows && columns == network.n_inputs(), "inputs shape");
    }
};

}  // namespace patrac::bindings
