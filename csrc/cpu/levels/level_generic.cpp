// Level generic, any processor but x86-64: the compiler's 16-byte vectors.
#define PATRAC_LEVEL generic
#define PATRAC_VECTOR_BYTES 16
#include "cpu/levels/level-inl.hpp"
