// The contractions of the fixed part, compiled by one unit of each level (levels/).
#pragma once

#include "cpu/tiles/contraction.hpp"
#include "cpu/tiles/pack.hpp"
#include "shared/activation.hpp"

namespace patrac::PATRAC_LEVEL {

// How a map of the fixed part starts and ends its sums, see contract().
struct FixedMapEnds {
    struct Node {
        double bias;

        template <class W>
        PATRAC_FN W start(std::int64_t) const {
            return broadcast<W>(bias);
        }
        template <class W>
        PATRAC_FN W result(std::int64_t, W z) const {
            return z;
        }
    };
    const double* bias;

    PATRAC_FN Node at(std::int64_t o) const { return {bias[o]}; }
};

void apply_map(const FixedMap& map, const double* below, double* out, std::int64_t stride, std::int64_t n_vectors,
               std::optional<Activation> activation) {
    using V = Vec<double>;
    const std::int64_t count = std::ssize(map.nodes);
    const Sources<double> sources{below, map.n_in, stride};
    contract(Contraction<double>{count, map.weights.data(), map.n_in, 1, &sources, 1, out, stride, n_vectors},
             FixedMapEnds{map.biases.data()});
    if (!activation) return;
    visit(*activation, [&](auto zeta) {
        for (double* node = out; node < out + count * stride; node += stride)
            for (std::int64_t row = 0; row < n_vectors * lanes_v<V>; row += lanes_v<V>)
                store<V>(node + row, decltype(zeta)::value(load<V>(node + row)));
    });
}

}  // namespace patrac::PATRAC_LEVEL
