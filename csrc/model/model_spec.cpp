// Checks a model's specification.
#include "model/model_spec.hpp"

#include <stdexcept>
#include <string>

namespace patrac {
namespace {

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("model: ") + what);
}

void check_network(const Network& network) {
    require(!network.layers.empty(), "a network has at least one layer");
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
        const Layer& layer = network.layers[l];
        const auto nodes = static_cast<std::size_t>(layer.n_out),
                   weights = nodes * static_cast<std::size_t>(layer.n_in);
        require(l == 0 || layer.n_in == network.layers[l - 1].n_out, "each layer reads the nodes of the one below");
        require(layer.weights.size() == weights && layer.weight_mask.size() == weights,
                "weights and their mask are (N_l, N_l-1)");
        require(layer.biases.size() == nodes && layer.bias_mask.size() == nodes, "biases and their mask are (N_l,)");
    }
}

}  // namespace

void ModelSpec::check() const {
    check_network(network);
    if (companion) {
        check_network(*companion);
        require(companion->n_inputs() == network.n_inputs() && companion->n_outputs() == network.n_outputs(),
                "the companion has the network's inputs and outputs");
    }
    require(traits_of(likelihood.kind).targets != TargetLayout::by_pair || network.n_outputs() % 2 == 0,
            "the outputs of this likelihood are pairs");
    for (const auto& parameter : likelihood.parameters)
        require(std::ssize(parameter) == network.n_outputs(), "a parameter of the likelihood has one value an output");
}

}  // namespace patrac
