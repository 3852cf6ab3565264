// What a cell does with its sums, and how that runs backwards. Knows no weights and no threads.
#pragma once
#include "vectors.h"

enum Kind : int64_t { LSTM = 0, GRU = 1, RNN_TANH = 2, RNN_RELU = 3 };

// Vectors side by side in a panel; a cell with one gate takes two vectors of units at once.
constexpr int WIDTH[] = {4, 3, 2, 2};
constexpr int GATES[] = {4, 3, 1, 1};

// Floats that training keeps of each unit and step beside the outputs.
constexpr int KEPT[] = {5, 4, 0, 0};

static inline int64_t units_of(int64_t kind) { return kind >= RNN_TANH ? 2 * LANES : LANES; }

// Where one row of one step reads and writes, `unit` being the panel's first.
struct Place {
  const float* before;  // hidden state of the step before
  float* cell;          // LSTM: cell state, in place
  float* out;           // hidden state of this step
  float* kept;          // what training keeps, or null: KEPT stretches of `hidden` floats
  int64_t hidden;
  int64_t unit;
};

// Gates in PyTorch's order: input, forget, candidate, output.
static inline void lstm(const Vec* sums, const Place& at, int64_t count) {
  const Vec enter = sigmoid_of(sums[0]), forget = sigmoid_of(sums[1]);
  const Vec candidate = tanh_of(sums[2]), leave = sigmoid_of(sums[3]);
  const Vec cell = forget * load(at.cell + at.unit, count) + enter * candidate;
  store(at.cell + at.unit, cell, count);
  store(at.out + at.unit, leave * tanh_of(cell), count);
  if (!at.kept) return;
  const Vec all[] = {enter, forget, candidate, leave, cell};
  for (int part = 0; part < KEPT[LSTM]; ++part)
    store(at.kept + part * at.hidden + at.unit, all[part], count);
}

// Gates in PyTorch's order: reset, update, candidate. The recurrent sums come apart.
static inline void gru(const Vec* sums, const Vec* recurrent, const Place& at, int64_t count) {
  const Vec reset = sigmoid_of(sums[0] + recurrent[0]);
  const Vec update = sigmoid_of(sums[1] + recurrent[1]);
  const Vec candidate = tanh_of(sums[2] + reset * recurrent[2]);
  const Vec before = load(at.before + at.unit, count);
  store(at.out + at.unit, candidate + update * (before - candidate), count);
  if (!at.kept) return;
  const Vec all[] = {reset, update, candidate, recurrent[2]};
  for (int part = 0; part < KEPT[GRU]; ++part)
    store(at.kept + part * at.hidden + at.unit, all[part], count);
}

static inline void rnn(bool relu, const Vec* sums, const Place& at, int64_t count) {
  for (int n = 0; n < WIDTH[RNN_TANH] && n * LANES < count; ++n) {
    const Vec out = relu ? relu_of(sums[n]) : tanh_of(sums[n]);
    store(at.out + at.unit + n * LANES, out, count - n * LANES);
  }
}
