// What a noise stream is drawn for: a part of the Philox counter, the same on every level and device.
#pragma once

#include <cstdint>

namespace patrac {

enum class Purpose : std::uint16_t {
    proposal = 0,    // w of the kernels
    acceptance = 1,  // the uniform of the accept test, block 0
    init = 2,        // starting points
    prior = 3,       // draws from the prior
};

}  // namespace patrac
