// The specification of a model: network, Bayesian parameters and likelihood as plain arrays.
#pragma once

#include <optional>

#include "model/network.hpp"
#include "shared/likelihood.hpp"

namespace patrac {

struct ModelSpec {
    Network network;
    std::optional<Network> companion;  // fixed, its output added to that of `network` (Sep)
    Likelihood likelihood;

    // Throws std::invalid_argument where shapes do not fit.
    void check() const;
};

}  // namespace patrac
