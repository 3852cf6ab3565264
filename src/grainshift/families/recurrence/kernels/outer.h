// Sums of outer products over many rows: the gradients of weights and biases.
//
// out[m][n] = sum over k of left[k][m] * right[k][n]. A member of the team owns some rows of `out`.
// It packs blocks of `right`, then strips of `left`, so that the innermost loop reads lines side by
// side. Knows no layer and no step.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "team.h"
#include "vectors.h"

namespace {

// One call, as Python lays it out: 8 bytes a field, in this order.
struct Outer {
  const float* left;
  const float* right;
  float* out;      // rows of `columns` floats
  float* sums;     // null, or the sums over k of left[k][m]
  int64_t left_step, right_step, rows, columns, count;  // `count`: how many k
  int64_t shift;   // row m goes to row (m + shift) % rows of `out` and `sums`
  int64_t is_more;  // whether to add to what is there
  int64_t threads;
  const Pool* pool;
};

constexpr int OUTER_WIDTH = 2, OUTER_ROWS = std::min(LANES, REGISTERS >= 32 ? 8 : 4);
static_assert(LANES % OUTER_ROWS == 0, "a strip is LANES rows");
constexpr int OUTER_COLUMNS = OUTER_WIDTH * LANES;
constexpr int64_t OUTER_COUNT = 256, OUTER_FLOATS = 1 << 17;  // of one packed block of `right`

// acc[r][n] += sum over k of strip[k][r] * block[k][n]
inline void add_outer(const float* strip, const Vec* block, int64_t count, Vec* acc) {
  Vec sums[OUTER_ROWS][OUTER_WIDTH];
  for (int r = 0; r < OUTER_ROWS; ++r)
    for (int n = 0; n < OUTER_WIDTH; ++n) sums[r][n] = acc[r * OUTER_WIDTH + n];
  for (int64_t k = 0; k < count; ++k, strip += LANES, block += OUTER_WIDTH) {
    Vec line[OUTER_WIDTH];
    for (int n = 0; n < OUTER_WIDTH; ++n) line[n] = block[n];
#pragma GCC unroll 8
    for (int r = 0; r < OUTER_ROWS; ++r) {
      const Vec x = splat(strip[r]);
#pragma GCC unroll 2
      for (int n = 0; n < OUTER_WIDTH; ++n) sums[r][n] += x * line[n];
    }
  }
  for (int r = 0; r < OUTER_ROWS; ++r)
    for (int n = 0; n < OUTER_WIDTH; ++n) acc[r * OUTER_WIDTH + n] = sums[r][n];
}

class OuterMember {
 public:
  OuterMember(const Outer& call, int rank, int size)
      : call_(call), blocks_((call.columns + OUTER_COLUMNS - 1) / OUTER_COLUMNS) {
    const int64_t strips = (call.rows + LANES - 1) / LANES;
    from_ = strips * rank / size * LANES;
    to_ = std::min(strips * (rank + 1) / size * LANES, call.rows);
  }

  int64_t floats() const { return most() * (blocks_ * OUTER_COLUMNS + LANES); }

  void run(float* scratch) const {
    float* strip = scratch + most() * blocks_ * OUTER_COLUMNS;
    for (int64_t at = 0; at < call_.count; at += most()) {
      const int64_t count = std::min(most(), call_.count - at);
      if (from_ < to_) pack_right(at, count, scratch);
      for (int64_t row = from_; row < to_; row += LANES) {
        pack_left(row, at, count, strip);
        for (int64_t part = 0; part < LANES && row + part < to_; part += OUTER_ROWS)
          for (int64_t block = 0; block < blocks_; ++block)
            add(row + part, block, at, count, strip + part, scratch);
      }
    }
  }

 private:
  int64_t shifted(int64_t row) const {
    const int64_t to = row + call_.shift;
    return to < call_.rows ? to : to - call_.rows;
  }

  int64_t most() const {
    return std::min(OUTER_COUNT, std::max<int64_t>(OUTER_FLOATS / std::max<int64_t>(blocks_ * OUTER_COLUMNS, 1), 16));
  }

  void pack_right(int64_t at, int64_t count, float* packed) const {
    for (int64_t block = 0; block < blocks_; ++block)
      for (int64_t k = at; k < at + count; ++k)
        for (int n = 0; n < OUTER_WIDTH; ++n, packed += LANES) {
          const int64_t column = block * OUTER_COLUMNS + n * LANES;
          const float* from = call_.right + k * call_.right_step + column;
          store(packed, column < call_.columns ? load(from, call_.columns - column) : Vec{});
        }
  }

  void pack_left(int64_t row, int64_t at, int64_t count, float* strip) const {
    const int64_t some = std::min<int64_t>(to_ - row, LANES);
    Vec sum = {};
    for (int64_t k = 0; k < count; ++k) {
      const Vec line = load(call_.left + (at + k) * call_.left_step + row, some);
      sum += line;
      store(strip + k * LANES, line);
    }
    if (!call_.sums) return;
    for (int64_t lane = 0; lane < some; ++lane) {
      float& total = call_.sums[shifted(row + lane)];
      total = sum[lane] + (call_.is_more || at ? total : 0.0f);
    }
  }

  void add(int64_t row, int64_t block, int64_t at, int64_t count, const float* strip,
           const float* packed) const {
    Vec acc[OUTER_ROWS * OUTER_WIDTH] = {};
    const int64_t some = std::min<int64_t>(to_ - row, OUTER_ROWS);
    const int64_t first = block * OUTER_COLUMNS;
    float* place[OUTER_ROWS];
    for (int64_t r = 0; r < some; ++r) place[r] = call_.out + shifted(row + r) * call_.columns + first;
    if (call_.is_more || at)
      for (int64_t r = 0; r < some; ++r)
        for (int n = 0; n < OUTER_WIDTH; ++n)
          acc[r * OUTER_WIDTH + n] = load(place[r] + n * LANES, call_.columns - first - n * LANES);
    add_outer(strip, reinterpret_cast<const Vec*>(packed + block * count * OUTER_COLUMNS), count, acc);
    for (int64_t r = 0; r < some; ++r)
      for (int n = 0; n < OUTER_WIDTH; ++n)
        store(place[r] + n * LANES, acc[r * OUTER_WIDTH + n], call_.columns - first - n * LANES);
  }

  const Outer& call_;
  int64_t blocks_, from_, to_;
};

struct OuterJob {
  const Outer& call;
  std::atomic<bool> has_failed{false};
};

void take_outer_part(OuterJob& job, int rank, int size) {
  const OuterMember member(job.call, rank, size);
  const int64_t bytes = (member.floats() * 4 + 63) / 64 * 64;
  float* scratch = static_cast<float*>(std::aligned_alloc(64, bytes));
  if (scratch)
    member.run(scratch);
  else
    job.has_failed = true;
  std::free(scratch);
}

void outer_body(void* data) {
  OuterJob& job = *static_cast<OuterJob*>(data);
  take_outer_part(job, job.call.pool->number(), job.call.pool->size());
}

}  // namespace

extern "C" {

// 0 when it ran; 1 where there is no memory.
int gs_outer(const Outer* call) {
  OuterJob job{*call};
  if (call->threads <= 1 || !call->pool)
    take_outer_part(job, 0, 1);
  else
    call->pool->parallel(outer_body, &job, static_cast<unsigned>(call->threads), 0);
  return job.has_failed;
}

}
