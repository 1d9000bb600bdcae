#pragma once

#include "kernel/cooperation.hpp"

// Atomic operations. As threads take turns, plain ones do; what must be said is that they are atomic, so the
// compiler must not report their accesses as well.

#define STANDIN_ATOMIC __attribute__((no_sanitize("thread"), noinline))

template <class T, class Change>
STANDIN_ATOMIC T standin_atomic(T* address, Change change) {
  standin::note_atomic(address, sizeof(T));
  const T old = *address;
  *address = change(old);
  return old;
}

#define STANDIN_ATOMIC_OPERATION(name, type, result)                                                 \
  inline type name(type* address, type value) {                                                      \
    return standin_atomic(                                                                           \
        address, [value](type old) __attribute__((no_sanitize("thread")))->type { return result; }); \
  }
#define STANDIN_INTEGER_ATOMICS(type)                                         \
  STANDIN_ATOMIC_OPERATION(atomicAdd, type, old + value)                      \
  STANDIN_ATOMIC_OPERATION(atomicMax, type, old < value ? value : old)        \
  STANDIN_ATOMIC_OPERATION(atomicMin, type, value < old ? value : old)        \
  STANDIN_ATOMIC_OPERATION(atomicExch, type, (static_cast<void>(old), value)) \
  STANDIN_ATOMIC_OPERATION(atomicAnd, type, old& value)                       \
  STANDIN_ATOMIC_OPERATION(atomicOr, type, old | value)                       \
  STANDIN_ATOMIC_OPERATION(atomicXor, type, old ^ value)
STANDIN_INTEGER_ATOMICS(int)
STANDIN_INTEGER_ATOMICS(unsigned)
STANDIN_INTEGER_ATOMICS(unsigned long long)
STANDIN_ATOMIC_OPERATION(atomicSub, int, old - value)
STANDIN_ATOMIC_OPERATION(atomicSub, unsigned, old - value)
STANDIN_ATOMIC_OPERATION(atomicAdd, float, old + value)
STANDIN_ATOMIC_OPERATION(atomicAdd, double, old + value)
STANDIN_ATOMIC_OPERATION(atomicExch, float, (static_cast<void>(old), value))
#undef STANDIN_INTEGER_ATOMICS
#undef STANDIN_ATOMIC_OPERATION

template <class T>
STANDIN_ATOMIC T atomicCAS(T* address, T expected, T value) {
  standin::note_atomic(address, sizeof(T));
  const T old = *address;
  *address = old == expected ? value : old;
  return old;
}

inline void __threadfence() {}
inline void __threadfence_block() {}
