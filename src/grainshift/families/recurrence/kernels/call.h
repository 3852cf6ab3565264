// One call of the kernels, as whoever calls them lays it out. Knows no algorithm.
#pragma once
#include "net.h"
#include "team.h"

// 8 bytes a field, in this order.
struct Call {
  const Net* net;
  const Pool* pool;
  const float* x;
  int64_t x_step, x_row;  // floats from step to step, from row to row
  const float *h, *c;     // states before: sweeps x rows x hidden
  float* y;
  int64_t y_step, y_row;
  float* between;  // outputs of the layers before the last, or null: then they are scratch
  float *h_after, *c_after;
  float* kept;                 // null, or what training keeps, sweep by sweep
  const int64_t* rows_at;      // null, or the rows of each step (PackedSequence), never growing
  const int64_t* first_row;    // with rows_at: where each step's rows begin
  int64_t steps, rows;
  int64_t block, until;  // input products of `block` steps at once, before step `until`
  int64_t threads, wave;
  const int64_t* plan;  // null, or `block` and `until` of each sweep in turn
  int64_t steps_before;  // of earlier calls; `gs_run` fills it in
};

enum Answer { RAN = 0, STALE = 1, NO_MEMORY = 2 };
