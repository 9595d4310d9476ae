// The elementary functions of the model and of its noise, in one include.
//
// exponential.hpp  exp, tanh, sigmoid
// logarithm.hpp    log, log1p, softplus; log_unit (noise)
// erf.hpp          erf, erf_with_gaussian
// turn.hpp         sincos_turn (noise)
//
// Model functions may differ between levels in the last place, where a level fuses a multiplication and an addition;
// the noise functions use + - * / and integer operations alone and give the same bits everywhere.
#pragma once

#include "shared/erf.hpp"
#include "shared/exponential.hpp"
#include "shared/logarithm.hpp"
#include "shared/turn.hpp"
