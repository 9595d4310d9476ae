// Level v3, x86-64-v3: 32-byte vectors with fused multiply-add.
#define PATRAC_LEVEL v3
#define PATRAC_VECTOR_BYTES 32
#include "cpu/levels/level-inl.hpp"
