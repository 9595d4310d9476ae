// The parameters of a likelihood by name.
#include "shared/likelihood.hpp"

#include <numeric>
#include <stdexcept>
#include <string>

namespace patrac {

const std::vector<double>& Likelihood::parameter(std::string_view name) const {
    const LikelihoodTraits& traits = traits_of(kind);
    for (std::size_t i = 0; i < parameters.size(); ++i)
        if (traits.parameters[i] == name) return parameters[i];
    throw std::invalid_argument("likelihood '" + std::string(traits.name) + "' has no parameter '" + std::string(name) +
                                "'");
}

double Likelihood::sum_of_constants() const {
    const std::vector<double>& of_outputs = parameter("constant");
    return std::accumulate(of_outputs.begin(), of_outputs.end(), 0.0);
}

std::vector<double> Likelihood::noise_variance() const {
    if (kind != LikelihoodKind::gaussian) return {};
    return parameter("variance");
}

}  // namespace patrac
