// Level v4, x86-64-v4: 64-byte vectors, 32 registers.
#define PATRAC_LEVEL v4
#define PATRAC_VECTOR_BYTES 64
#include "cpu/levels/level-inl.hpp"
