// The activation functions: their names and, where a level is being compiled, each beside its derivative, and the
// choice among them.
#pragma once

#include <cstdint>
#include <iterator>

#include "shared/names.hpp"

namespace patrac {

enum class Activation : std::uint8_t { tanh, relu, gelu, silu, sigmoid, softplus };

inline constexpr Named<Activation> activations[] = {
    {Activation::tanh, "tanh"}, {Activation::relu, "relu"},       {Activation::gelu, "gelu"},
    {Activation::silu, "silu"}, {Activation::sigmoid, "sigmoid"}, {Activation::softplus, "softplus"},
};
static_assert(in_order(activations) && is_whole<Activation, std::size(activations)>);

// Whether no value exceeds 1 in size.
constexpr bool is_bounded(Activation activation) {
    switch (activation) {
        case Activation::tanh:
        case Activation::sigmoid: return true;
        case Activation::relu:
        case Activation::gelu:
        case Activation::silu:
        case Activation::softplus: return false;
    }
    __builtin_unreachable();
}

}  // namespace patrac

// Sources that do not depend on a level see the names alone.
#if defined(PATRAC_LEVEL)

#include "shared/elementary.hpp"
#include "shared/host_device.hpp"
#include "shared/lanes.hpp"

namespace patrac::PATRAC_LEVEL {

// value(z) and its derivative. Where the derivative is cheap in terms of the value a, `from_value` is true and
// derivative(a) takes a; otherwise derivative(z) takes z, and the engine keeps z beside a.
struct Tanh {
    static constexpr bool from_value = true;
    template <class V>
    static PATRAC_FN V value(V z) {
        return tanh(z);
    }
    template <class V>
    static PATRAC_FN V derivative(V a) {
        return broadcast<V>(1) - a * a;
    }
};

struct Relu {  // derivative 0 at 0, as torch has it
    static constexpr bool from_value = true;
    // z < 0 and not z > 0, so that a NaN stays a NaN.
    template <class V>
    static PATRAC_FN V value(V z) {
        return select(z < broadcast<V>(0), broadcast<V>(0), z);
    }
    template <class V>
    static PATRAC_FN V derivative(V a) {
        return select(a > broadcast<V>(0), broadcast<V>(1), broadcast<V>(0));
    }
};

struct Sigmoid {
    static constexpr bool from_value = true;
    template <class V>
    static PATRAC_FN V value(V z) {
        return sigmoid(z);
    }
    template <class V>
    static PATRAC_FN V derivative(V a) {
        return a * (broadcast<V>(1) - a);
    }
};

struct Silu {  // z sigmoid(z)
    static constexpr bool from_value = false;
    template <class V>
    static PATRAC_FN V value(V z) {
        return z * sigmoid(z);
    }
    template <class V>
    static PATRAC_FN V derivative(V z) {
        const V s = sigmoid(z);
        return s + z * s * (broadcast<V>(1) - s);
    }
};

struct Gelu {  // z Phi(z), the exact form, Phi(z) = (1 + erf(z / sqrt 2)) / 2
    static constexpr bool from_value = false;
    template <class V>
    static PATRAC_FN V cdf(V erf_value) {
        using T = scalar_t<V>;
        return broadcast<V>(T(0.5)) + broadcast<V>(T(0.5)) * erf_value;
    }
    template <class V>
    static PATRAC_FN V scaled(V z) {
        return z * broadcast<V>(scalar_t<V>(0.70710678118654752440));
    }
    template <class V>
    static PATRAC_FN V value(V z) {
        return z * cdf(erf(scaled(z)));
    }
    template <class V>
    static PATRAC_FN V derivative(V z) {
        V gaussian;  // exp(-z^2 / 2), which erf needs anyway
        const V erf_value = erf_with_gaussian(scaled(z), gaussian);
        return cdf(erf_value) + z * broadcast<V>(scalar_t<V>(0.39894228040143267794)) * gaussian;
    }
};

struct Softplus {  // log(1 + e^z)
    static constexpr bool from_value = false;
    template <class V>
    static PATRAC_FN V value(V z) {
        return softplus(z);
    }
    template <class V>
    static PATRAC_FN V derivative(V z) {
        return sigmoid(z);
    }
};

// Calls f with the activation's type.
template <class F>
PATRAC_DISPATCH auto visit(Activation activation, F&& f) {
    switch (activation) {
        case Activation::tanh: return f(Tanh{});
        case Activation::relu: return f(Relu{});
        case Activation::gelu: return f(Gelu{});
        case Activation::silu: return f(Silu{});
        case Activation::sigmoid: return f(Sigmoid{});
        case Activation::softplus: return f(Softplus{});
    }
    __builtin_unreachable();
}

}  // namespace patrac::PATRAC_LEVEL

#endif
