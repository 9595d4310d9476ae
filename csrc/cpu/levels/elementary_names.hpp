// The elementary functions that tests reach by name.
#pragma once

namespace patrac {

// The order of apply_elementary's identifiers, the same for every level.
inline constexpr const char* elementary_names[] = {"exp", "log",   "log1p",    "softplus", "tanh",     "sigmoid",
                                                   "erf", "gauss", "log_unit", "sin_turn", "cos_turn", "sqrt"};
inline constexpr int n_elementary = int(sizeof(elementary_names) / sizeof(elementary_names[0]));

}  // namespace patrac
