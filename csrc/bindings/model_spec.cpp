// Bindings of what a model is made of, and of the names that Python may use in it.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "patrac.hpp"

namespace patrac::bindings {
namespace {

using Arrays = std::vector<Array<double>>;
using Masks = std::vector<Array<bool>>;
using Parameters = std::map<std::string, Array<double>>;

std::vector<std::uint8_t> mask_of(const Array<bool>& mask) {
    return {mask.data(), mask.data() + mask.size()};
}

// Without masks nothing is Bayesian.
Network make_network(Activation activation, const Arrays& weights, const Arrays& biases, const Masks* weight_masks,
                     const Masks* bias_masks) {
    require(weights.size() == biases.size(), "one weight matrix and bias vector for each layer");
    require(!weight_masks || (weight_masks->size() == weights.size() && bias_masks->size() == weights.size()),
            "one mask for each weight matrix and bias vector");
    Network network;
    network.activation = activation;
    for (std::size_t l = 0; l < weights.size(); ++l) {
        require(weights[l].ndim() == 2 && biases[l].ndim() == 1, "weights (N_l, N_l-1) and biases (N_l,)");
        Layer layer;
        layer.n_out = weights[l].shape(0);
        layer.n_in = weights[l].shape(1);
        layer.weights = to_vector(weights[l]);
        layer.biases = to_vector(biases[l]);
        layer.weight_mask =
            weight_masks ? mask_of((*weight_masks)[l]) : std::vector<std::uint8_t>(layer.weights.size(), 0);
        layer.bias_mask = bias_masks ? mask_of((*bias_masks)[l]) : std::vector<std::uint8_t>(layer.biases.size(), 0);
        network.layers.push_back(std::move(layer));
    }
    return network;
}

Likelihood make_likelihood(const std::string& name, const Parameters& given) {
    const LikelihoodTraits& traits = entry_of(likelihoods, name, "likelihood");
    Likelihood likelihood{traits.value, {}};
    for (const std::string_view parameter : traits.parameters) {
        if (parameter.empty()) break;
        const auto found = given.find(std::string(parameter));
        require(found != given.end(), "a parameter of the likelihood is missing");
        likelihood.parameters.push_back(to_vector(found->second));
    }
    require(likelihood.parameters.size() == given.size(), "a parameter that the likelihood does not have");
    return likelihood;
}

}  // namespace

void bind_model_spec(py::module_& m) {
    m.def("activations", [] { return names_of(activations); });
    m.def("likelihoods", [] { return names_of(likelihoods); });
    m.def("kernels", [] { return names_of(kernels); });
    py::class_<ModelSpec>(m, "ModelSpec")
        .def(py::init([](const std::string& activation, const Arrays& weights, const Arrays& biases,
                         const Masks& weight_masks, const Masks& bias_masks,
                         const std::optional<std::pair<Arrays, Arrays>>& companion, const std::string& likelihood,
                         const Parameters& likelihood_parameters) {
                 const Activation zeta = entry_of(activations, activation, "activation").value;
                 ModelSpec spec{.network = make_network(zeta, weights, biases, &weight_masks, &bias_masks),
                                .companion = std::nullopt,
                                .likelihood = make_likelihood(likelihood, likelihood_parameters)};
                 if (companion)
                     spec.companion = make_network(zeta, companion->first, companion->second, nullptr, nullptr);
                 spec.check();
                 return spec;
             }),
             py::kw_only(), py::arg("activation"), py::arg("weights"), py::arg("biases"), py::arg("weight_masks"),
             py::arg("bias_masks"), py::arg("companion"), py::arg("likelihood"), py::arg("likelihood_parameters"));
}

}  // namespace patrac::bindings
