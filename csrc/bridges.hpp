// The facade of what other libraries call: log densities with gradients. The bindings include nothing else of bridges/.
#pragma once

#include "bridges/c_functions.hpp"
#include "bridges/density.hpp"
#include "bridges/xla_handler.hpp"
