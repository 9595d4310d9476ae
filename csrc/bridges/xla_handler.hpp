// The density as a foreign function of XLA, which JAX calls on the CPU without Python.
#pragma once

#include <cstdint>
#include <memory>

#include "bridges/density.hpp"
#include "bridges/xla_interface.hpp"

namespace patrac {

// Handlers of calls with one argument x (..., D) of type T, the results value (...) and, `with_gradient`, gradient
// (..., D), and the attributes `density`, a number that publish() returned, and `threads`, of the batch.
template <class T>
xla::Handler xla_handler(bool with_gradient);

// Compiled programs name a density by a number, which is not used again. When XLA instantiates a program, the density
// of its number becomes part of it, so that it lives for as long as the program or a computation that is under way.
template <class T>
xla::Handler xla_instantiate();
// What XLA must know of that state: the place where it writes the number of its type, and how to delete one.
std::int64_t* xla_state_type();
xla::TypeInfo* xla_state_info();

// Programs can be instantiated until withdraw().
template <class T>
std::int64_t publish(std::shared_ptr<const Density<T>> density);
template <class T>
void withdraw(std::int64_t number);

}  // namespace patrac
