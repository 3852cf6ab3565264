// Products of a few rows with one panel of packed weights, in fp32 or with weights in bf16 or int8.
//
// A panel holds, for each input k, N vectors side by side. In bf16 a word holds two neighbouring
// inputs: the even one in its low half. In int8 a word holds four, the first in its lowest byte, and
// the panel begins with N vectors of scales, one for each row of the matrix. The bytes below one in
// a word are not cut off when it is read: they are a fraction of its step that packing counted in.
// Knows no gate.
#pragma once
#include "vectors.h"

enum Precision : int64_t { FP32 = 0, BF16 = 1, INT8 = 2 };

// acc[r * N + n] += sum over k of rows[r][k] * panel[k][n]
typedef void (*Product)(const float* const* rows, int64_t inputs, const void* panel, Vec* acc);

template <int N>
constexpr int most_rows() {
  constexpr int rows = (REGISTERS - N - 1) / N;
  return rows < 1 ? 1 : rows > 8 ? 8 : rows;
}

// Each reads, of INPUTS neighbouring inputs from `k` on, the weights of the one numbered `part`.
struct Fp32Panel {
  static constexpr int INPUTS = 1;
  static constexpr bool SCALED = false;
  template <int N>
  static inline Vec at(const void* panel, int64_t k, int, int n) {
    return static_cast<const Vec*>(panel)[k * N + n];
  }
};

struct Bf16Panel {
  static constexpr int INPUTS = 2;
  static constexpr bool SCALED = false;
  template <int N>
  static inline Vec at(const void* panel, int64_t k, int part, int n) {
    const Bits word = static_cast<const Bits*>(panel)[k / 2 * N + n];
    return reinterpret_cast<Vec>(part ? word & 0xffff0000u : word << 16);
  }
};

struct Int8Panel {
  static constexpr int INPUTS = 4;
  static constexpr bool SCALED = true;
  template <int N>
  static inline Vec at(const void* panel, int64_t k, int part, int n) {
    const Ints word = reinterpret_cast<const Ints*>(static_cast<const Vec*>(panel) + N)[k / 4 * N + n];
    return __builtin_convertvector(word << (24 - 8 * part), Vec);
  }
};

template <class Panel, int N, int R>
void product(const float* const* rows, int64_t inputs, const void* panel, Vec* acc) {
  constexpr int P = Panel::INPUTS;
  // One row alone has too few sums to keep two multipliers busy: it gets several of each.
  constexpr int WAYS = R * N * P >= 8 ? P : R * N * P >= 6 ? 2 * P : 4 * P;
  constexpr int SUMS = R == 1 || R * N < 8 ? WAYS : 1;
  const Vec* scales = static_cast<const Vec*>(panel);  // where there are any
  Vec sums[SUMS][R][N];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) sums[0][r][n] = Panel::SCALED ? Vec{} : acc[r * N + n];
  for (int s = 1; s < SUMS; ++s)
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) sums[s][r][n] = Vec{};
  const float* row[R];
  for (int r = 0; r < R; ++r) row[r] = rows[r];
  int64_t k = 0;
  for (; k + WAYS <= inputs; k += WAYS) {
#pragma GCC unroll 8
    for (int part = 0; part < WAYS; part += P) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        Vec w[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) w[n] = Panel::template at<N>(panel, k + part, p, n);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Vec x = splat(row[r][k + part + p]);
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n) sums[(part + p) % SUMS][r][n] += x * w[n];
        }
      }
    }
  }
  for (; k < inputs; k += P) {
    for (int p = 0; p < P && k + p < inputs; ++p)
      for (int r = 0; r < R; ++r) {
        const Vec x = splat(row[r][k + p]);
        for (int n = 0; n < N; ++n) sums[0][r][n] += x * Panel::template at<N>(panel, k, p, n);
      }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) {
      Vec sum = sums[0][r][n];
      for (int s = 1; s < SUMS; ++s) sum += sums[s][r][n];
      acc[r * N + n] = Panel::SCALED ? acc[r * N + n] + sum * scales[n] : sum;
    }
}

template <class Panel, int N, int R = 1>
static Product product_of(int64_t rows) {
  if constexpr (R < most_rows<N>()) {
    if (rows > R) return product_of<Panel, N, R + 1>(rows);
  }
  return product<Panel, N, R>;
}

template <int N>
static Product find_product(int64_t precision, int64_t rows) {
  if (precision == BF16) return product_of<Bf16Panel, N>(rows);
  if (precision == INT8) return product_of<Int8Panel, N>(rows);
  return product_of<Fp32Panel, N>(rows);
}
