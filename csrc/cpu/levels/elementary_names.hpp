// The elementary functions that tests reach by name.
#pragma once

#include <cstdint>
#include <iterator>

#include "shared/names.hpp"

namespace patrac {

enum class Elementary : std::uint8_t {
    exp,
    log,
    log1p,
    softplus,
    tanh,
    sigmoid,
    erf,
    gauss,
    log_unit,
    sin_turn,
    cos_turn,
    sqrt
};

inline constexpr Named<Elementary> elementary_functions[] = {
    {Elementary::exp, "exp"},           {Elementary::log, "log"},           {Elementary::log1p, "log1p"},
    {Elementary::softplus, "softplus"}, {Elementary::tanh, "tanh"},         {Elementary::sigmoid, "sigmoid"},
    {Elementary::erf, "erf"},           {Elementary::gauss, "gauss"},       {Elementary::log_unit, "log_unit"},
    {Elementary::sin_turn, "sin_turn"}, {Elementary::cos_turn, "cos_turn"}, {Elementary::sqrt, "sqrt"},
};
static_assert(in_order(elementary_functions) && is_whole<Elementary, std::size(elementary_functions)>);

}  // namespace patrac
