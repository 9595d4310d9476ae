// Level v2, x86-64-v2: 16-byte vectors, no fused multiply-add.
#define PATRAC_LEVEL v2
#define PATRAC_VECTOR_BYTES 16
#include "cpu/levels/level-inl.hpp"
