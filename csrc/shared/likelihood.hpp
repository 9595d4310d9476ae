// The likelihoods: which there are, and how their targets are laid out.
#pragma once

#include <cstdint>

namespace patrac {

enum class LikelihoodKind : std::uint8_t { gaussian, categorical, bernoulli };

// Numbers that each row's target takes: a label for Categorical, else one for each output.
inline std::int64_t targets_per_row(LikelihoodKind kind, std::int64_t n_outputs) {
    return kind == LikelihoodKind::categorical ? 1 : n_outputs;
}

}  // namespace patrac
