// The C interface of a density; patrac_density.h, which is installed with the package, documents it.
#pragma once

#include <patrac_density.h>

#include <cstdint>
#include <memory>

#include "bridges/density.hpp"

namespace patrac {

// What the functions take as `ctx`.
struct CContext {
    std::shared_ptr<const WideDensity> density;
    std::int64_t threads;  // that share the points of a batch
};

extern const patrac_density_function density_function;
extern const patrac_density_batched density_batched;

}  // namespace patrac
