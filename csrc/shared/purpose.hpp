// What a noise stream is drawn for: a part of the Philox counter, the same on every level and device.
#pragma once

#include <cstdint>

namespace patrac {

enum class Purpose : std::uint16_t {
    proposal = 0,          // w of the kernels
    acceptance = 1,        // the uniform of the accept test, block 0
    init = 2,              // starting points
    prior = 3,             // draws from the prior
    slice = 4,             // angles of the elliptical slice, one block each
    output_weights = 5,    // the collapsed output weights of a draw
    variance_normal = 6,   // candidates of the noise variance, one block each
    variance_uniform = 7,  // their accept tests
    persistence = 8,       // the first noise and the first accept threshold of a chain that keeps them
    scale_normal = 9,      // candidates of the scales of the prior, group after group
    scale_uniform = 10,    // their accept tests
    mixture_normal = 11,   // candidates of the rows' precisions under Student-t noise, output after output
    mixture_uniform = 12,  // their accept tests
    rescale_normal = 13,   // the log factor of a scale of the prior that moves with its parameters
    rescale_uniform = 14,  // which scale, and its accept test
};

}  // namespace patrac
