// Products of a few rows with one panel of packed weights, in fp32 or with weights in bf16.
//
// A panel holds, for each input k, N vectors side by side. In bf16 a word holds two neighbouring
// inputs: the even one in its low half. Knows no gate.
#pragma once
#include "vectors.h"

enum Precision : int64_t { FP32 = 0, BF16 = 1 };

// acc[r * N + n] += sum over k of rows[r][k] * panel[k][n]
typedef void (*Product)(const float* const* rows, int64_t inputs, const void* panel, Vec* acc);

template <int N>
constexpr int most_rows() {
  constexpr int rows = (REGISTERS - N - 1) / N;
  return rows < 1 ? 1 : rows > 8 ? 8 : rows;
}

struct Fp32Panel {
  static constexpr int INPUTS = 1;
  template <int N>
  static inline void at(const void* panel, int64_t k, Vec (&w)[1][N]) {
    const Vec* line = static_cast<const Vec*>(panel) + k * N;
    for (int n = 0; n < N; ++n) w[0][n] = line[n];
  }
};

struct Bf16Panel {
  static constexpr int INPUTS = 2;
  template <int N>
  static inline void at(const void* panel, int64_t k, Vec (&w)[2][N]) {
    const Bits* line = static_cast<const Bits*>(panel) + k / 2 * N;
    for (int n = 0; n < N; ++n) {
      w[0][n] = reinterpret_cast<Vec>(line[n] << 16);
      w[1][n] = reinterpret_cast<Vec>(line[n] & 0xffff0000u);
    }
  }
};

template <class Panel, int N, int R>
void product(const float* const* rows, int64_t inputs, const void* panel, Vec* acc) {
  constexpr int P = Panel::INPUTS;
  // One row alone has too few sums to keep two multipliers busy: it gets several of each.
  constexpr int WAYS = R * N * P >= 8 ? P : R * N * P >= 6 ? 2 * P : 4 * P;
  constexpr int SUMS = R == 1 || R * N < 8 ? WAYS : 1;
  Vec sums[SUMS][R][N];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) sums[0][r][n] = acc[r * N + n];
  for (int s = 1; s < SUMS; ++s)
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) sums[s][r][n] = Vec{};
  const float* row[R];
  for (int r = 0; r < R; ++r) row[r] = rows[r];
  int64_t k = 0;
  for (; k + WAYS <= inputs; k += WAYS) {
#pragma GCC unroll 8
    for (int part = 0; part < WAYS; part += P) {
      Vec w[P][N];
      Panel::template at<N>(panel, k + part, w);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Vec x = splat(row[r][k + part + p]);
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n) sums[(part + p) % SUMS][r][n] += x * w[p][n];
        }
    }
  }
  for (; k < inputs; k += P) {
    Vec w[P][N];
    Panel::template at<N>(panel, k, w);
    for (int p = 0; p < P && k + p < inputs; ++p)
      for (int r = 0; r < R; ++r) {
        const Vec x = splat(row[r][k + p]);
        for (int n = 0; n < N; ++n) sums[0][r][n] += x * w[p][n];
      }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) {
      Vec sum = sums[0][r][n];
      for (int s = 1; s < SUMS; ++s) sum += sums[s][r][n];
      acc[r * N + n] = sum;
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
  return precision == BF16 ? product_of<Bf16Panel, N>(rows) : product_of<Fp32Panel, N>(rows);
}
