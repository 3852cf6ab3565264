// Vectors of floats as wide as the host has them, and the two curves of every gate.
// Knows no layer. GCC and Clang vector extensions only, so that it builds on any processor.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
constexpr int LANES = 16, REGISTERS = 32;
#elif defined(__AVX__)
constexpr int LANES = 8, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int LANES = 4, REGISTERS = 32;
#else
constexpr int LANES = 4, REGISTERS = 16;
#endif

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef uint32_t Bits __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));
typedef float LooseVec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static inline Vec splat(float value) { return value - Vec{}; }

// Reads `count` floats; lanes beyond them are 0.
static inline Vec load(const float* from, int64_t count = LANES) {
  if (count >= LANES) return *reinterpret_cast<const LooseVec*>(from);
  float lanes[LANES] = {};
  for (int lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
  return *reinterpret_cast<const LooseVec*>(lanes);
}

static inline void store(float* to, Vec value, int64_t count = LANES) {
  if (count >= LANES) {
    *reinterpret_cast<LooseVec*>(to) = value;
    return;
  }
  float lanes[LANES];
  *reinterpret_cast<LooseVec*>(lanes) = value;
  for (int lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
}

// A rational fit of tanh, relative error below 4e-7; comparisons let NaN through.
static inline Vec tanh_of(Vec x) {
  const Vec most = splat(7.9f);
  x = x > most ? most : x;
  x = x < -most ? -most : x;
  const Vec z = x * x;
  Vec above = splat(2.4105691401321572e-11f);
  above = above * z + splat(-1.4906524015145806e-08f);
  above = above * z + splat(9.939304618455935e-06f);
  above = above * z + splat(0.002992111723870039f);
  above = above * z + splat(0.12984924018383026f);
  above = above * z + splat(1.0f);
  Vec below = splat(0.00023808875994291157f);
  below = below * z + splat(0.02405315451323986f);
  below = below * z + splat(0.4631824195384979f);
  below = below * z + splat(1.0f);
  return x * above / below;
}

static inline Vec sigmoid_of(Vec x) {
  const Vec half = splat(0.5f);
  return tanh_of(x * half) * half + half;
}

static inline Vec relu_of(Vec x) {
  const Vec zero = {};
  return x < zero ? zero : x;
}
