// Runs one layer of an LSTM, GRU or RNN backwards over some of its steps, on a team of threads.
//
// A member of the team owns some units for the whole walk: it turns the gradient of their state into
// the gradients of their sums, waits for the other members, and makes its units' part of the product
// with the recurrent matrix. What else follows from the sums' gradients (inputs, weights, biases) is
// left to large products outside. Knows no other layer.
#pragma once
#include "gates.h"
#include "product.h"
#include "team.h"

namespace {

// Stretches of `hidden` gradients that a step leaves of each row. GRU: recurrent candidate, reset,
// update, candidate, so that what the recurrent product takes and what the input takes are runs.
constexpr int LEFT[] = {4, 4, 1, 1};
constexpr int TURNED_WIDTH = 2;  // vectors of units side by side in a panel
constexpr int TURNED_UNITS = TURNED_WIDTH * LANES;

inline int64_t turned_panels(int64_t hidden) { return (hidden + TURNED_UNITS - 1) / TURNED_UNITS; }

inline int64_t turned_panel_floats(int64_t kind, int64_t hidden) {
  return GATES[kind] * hidden * TURNED_UNITS;
}

// One call, as Python lays it out: 8 bytes a field, in this order. The walk's turn 0 is the step
// that ran last.
struct BackCall {
  int64_t kind, hidden, directions, steps, rows;
  int64_t from, to;  // the turns to walk
  int64_t threads;
  const Pool* pool;
  const float* turned;  // recurrent matrices as `gs_turn` packs them, one a direction
  const float* kept;    // of the forward run: directions x steps x rows x KEPT x hidden
  const float* y;       // steps x rows x directions x hidden
  const float* dy;      // its gradient, or null
  const float *h, *c;   // states before the first step: directions x rows x hidden
  float *dh, *dc;       // gradients of the states after turn `from`; then of those before the last
  float* sums;          // out: directions x turns, in order of time, x rows x LEFT x hidden
};

// Where one row of one step reads and writes on its way back.
struct BackPlace {
  const float* kept;    // this step's gates
  const float* before;  // hidden state before the step; LSTM: cell state before it
  const float* y;
  const float* dy;
  float *dh, *dc;
  float* sums;
  int64_t hidden;
};

inline void lstm_back(const BackPlace& at, int64_t unit, int64_t count) {
  const auto kept = [&](int part) { return load(at.kept + part * at.hidden + unit, count); };
  const Vec enter = kept(0), forget = kept(1), candidate = kept(2), leave = kept(3);
  const Vec one = splat(1.0f), bent = tanh_of(kept(4));
  Vec dh = load(at.dh + unit, count);
  if (at.dy) dh += load(at.dy + unit, count);
  const Vec dc = load(at.dc + unit, count) + dh * leave * (one - bent * bent);
  const Vec before = load(at.before + unit, count);
  const Vec all[] = {dc * candidate * enter * (one - enter), dc * before * forget * (one - forget),
                     dc * enter * (one - candidate * candidate), dh * bent * leave * (one - leave)};
  for (int part = 0; part < LEFT[LSTM]; ++part)
    store(at.sums + part * at.hidden + unit, all[part], count);
  store(at.dc + unit, dc * forget, count);
  store(at.dh + unit, Vec{}, count);
}

inline void gru_back(const BackPlace& at, int64_t unit, int64_t count) {
  const auto kept = [&](int part) { return load(at.kept + part * at.hidden + unit, count); };
  const Vec reset = kept(0), update = kept(1), candidate = kept(2), recurrent = kept(3);
  const Vec one = splat(1.0f), before = load(at.before + unit, count);
  Vec dh = load(at.dh + unit, count);
  if (at.dy) dh += load(at.dy + unit, count);
  const Vec bent = dh * (one - update) * (one - candidate * candidate);
  const Vec all[] = {bent * reset, bent * recurrent * reset * (one - reset),
                     dh * (before - candidate) * update * (one - update), bent};
  for (int part = 0; part < LEFT[GRU]; ++part)
    store(at.sums + part * at.hidden + unit, all[part], count);
  store(at.dh + unit, dh * update, count);
}

inline void rnn_back(bool relu, const BackPlace& at, int64_t unit, int64_t count) {
  const Vec y = load(at.y + unit, count), one = splat(1.0f), zero = {};
  Vec dh = load(at.dh + unit, count);
  if (at.dy) dh += load(at.dy + unit, count);
  store(at.sums + unit, relu ? (y <= zero ? zero : dh) : dh * (one - y * y), count);
  store(at.dh + unit, zero, count);
}

// One member's share of one direction.
class BackMember {
 public:
  BackMember(const BackCall& call, Progress* progress, int64_t back, int first, int rank, int size,
             int id)
      : call_(call), progress_(progress), back_(back), first_(first), size_(size), id_(id),
        from_(turned_panels(call.hidden) * rank / size),
        to_(turned_panels(call.hidden) * (rank + 1) / size) {
    const int64_t state = call.rows * call.hidden, panels = turned_panels(call.hidden);
    h_ = call.h + back * state, dh_ = call.dh + back * state;
    if (call.kind == LSTM) c_ = call.c + back * state, dc_ = call.dc + back * state;
    kept_ = call.kept + back * call.steps * state * KEPT[call.kind];
    sums_ = call.sums + back * (call.to - call.from) * state * LEFT[call.kind];
    turned_ = call.turned + back * panels * turned_panel_floats(call.kind, call.hidden);
  }

  void run() const {
    for (int64_t turn = call_.from; turn < call_.to; ++turn) {
      bend(turn);
      progress_[id_].steps.store(turn + 1, std::memory_order_release);
      if (size_ > 1) await(progress_, first_, first_ + size_, turn + 1);
      pass_on(turn);
    }
  }

 private:
  int64_t time(int64_t turn) const { return back_ ? turn : call_.steps - 1 - turn; }

  int64_t in_y(int64_t turn, int64_t row) const {
    return ((time(turn) * call_.rows + row) * call_.directions + back_) * call_.hidden;
  }

  const float* kept(int64_t turn, int64_t row) const {
    return kept_ + (time(turn) * call_.rows + row) * KEPT[call_.kind] * call_.hidden;
  }

  float* sums(int64_t turn, int64_t row) const {
    const int64_t place = back_ ? turn - call_.from : call_.to - 1 - turn;
    return sums_ + (place * call_.rows + row) * LEFT[call_.kind] * call_.hidden;
  }

  const float* before(int64_t turn, int64_t row) const {
    const bool is_first = turn + 1 == call_.steps;
    if (call_.kind == LSTM)
      return is_first ? c_ + row * call_.hidden : kept(turn + 1, row) + 4 * call_.hidden;
    return is_first ? h_ + row * call_.hidden : call_.y + in_y(turn + 1, row);
  }

  // From the gradients of the state after a step to those of the step's sums.
  void bend(int64_t turn) const {
    const int64_t hidden = call_.hidden, end = std::min(to_ * TURNED_UNITS, hidden);
    for (int64_t row = 0; row < call_.rows; ++row) {
      const BackPlace at{kept(turn, row), before(turn, row), call_.y + in_y(turn, row),
                         call_.dy ? call_.dy + in_y(turn, row) : nullptr, dh_ + row * hidden,
                         dc_ ? dc_ + row * hidden : nullptr, sums(turn, row), hidden};
      for (int64_t unit = from_ * TURNED_UNITS; unit < end; unit += LANES) {
        if (call_.kind == LSTM)
          lstm_back(at, unit, end - unit);
        else if (call_.kind == GRU)
          gru_back(at, unit, end - unit);
        else
          rnn_back(call_.kind == RNN_RELU, at, unit, end - unit);
      }
    }
  }

  // From the gradients of a step's sums to those of the state before it. Every other turn walks the
  // panels backwards: what the cache kept of the last is met first.
  void pass_on(int64_t turn) const {
    for (int64_t count = 0; count < to_ - from_; ++count) {
      const int64_t panel = turn % 2 ? to_ - 1 - count : from_ + count;
      const int64_t most = most_rows<TURNED_WIDTH>(), runs = (call_.rows + most - 1) / most;
      for (int64_t run = 0, row = 0; run < runs; ++run) {
        const int64_t end = call_.rows * (run + 1) / runs;
        pass_on(turn, panel, row, end - row);
        row = end;
      }
    }
  }

  void pass_on(int64_t turn, int64_t panel, int64_t first, int64_t some) const {
    constexpr int MOST = most_rows<TURNED_WIDTH>();
    Vec into[MOST * TURNED_WIDTH];
    const float* rows[MOST];
    const int64_t unit = panel * TURNED_UNITS, hidden = call_.hidden;
    for (int64_t row = 0; row < some; ++row) {
      rows[row] = sums(turn, first + row);
      for (int n = 0; n < TURNED_WIDTH; ++n)
        into[row * TURNED_WIDTH + n] =
            load(dh_ + (first + row) * hidden + unit + n * LANES, hidden - unit - n * LANES);
    }
    const float* packed = turned_ + panel * turned_panel_floats(call_.kind, hidden);
    find_product<TURNED_WIDTH>(FP32, some)(rows, GATES[call_.kind] * hidden, packed, into);
    for (int64_t row = 0; row < some; ++row)
      for (int n = 0; n < TURNED_WIDTH; ++n)
        store(dh_ + (first + row) * hidden + unit + n * LANES, into[row * TURNED_WIDTH + n],
              hidden - unit - n * LANES);
  }

  const BackCall& call_;
  Progress* progress_;
  int64_t back_;
  int first_, size_, id_;
  int64_t from_, to_;
  const float *h_, *c_ = nullptr;
  float *dh_, *dc_ = nullptr;
  const float *kept_, *turned_;
  float* sums_;
};

struct BackJob {
  const BackCall& call;
  Progress progress[MOST_THREADS];
};

// Both directions are walked side by side where there are threads.
void take_back_part(BackJob& job, int id, int threads) {
  const int beside = static_cast<int>(std::min<int64_t>(threads, job.call.directions));
  const auto first = [&](int team) { return (team * threads + beside - 1) / beside; };
  for (int64_t back = id * beside / threads; back < job.call.directions; back += beside) {
    const int begin = first(id * beside / threads), end = first(id * beside / threads + 1);
    BackMember(job.call, job.progress, back, begin, id - begin, end - begin, id).run();
  }
}

void back_body(void* data) {
  BackJob& job = *static_cast<BackJob*>(data);
  take_back_part(job, job.call.pool->number(), job.call.pool->size());
}

}  // namespace

extern "C" {

int64_t gs_left(int64_t kind) { return LEFT[kind]; }

int64_t gs_kept(int64_t kind) { return KEPT[kind]; }

int64_t gs_turned_floats(int64_t kind, int64_t hidden) {
  return turned_panels(hidden) * turned_panel_floats(kind, hidden);
}

// Packs a recurrent matrix for products with the gradients of sums, in the order that LEFT has.
void gs_turn(int64_t kind, int64_t hidden, const float* recurrent, float* turned) {
  const int64_t inputs = GATES[kind] * hidden;
  for (int64_t unit = 0; unit < hidden; unit += TURNED_UNITS)
    for (int64_t input = 0; input < inputs; ++input, turned += TURNED_UNITS) {
      const int64_t row = kind == GRU ? (input + 2 * hidden) % inputs : input;
      for (int n = 0; n < TURNED_WIDTH; ++n) {
        const int64_t at = unit + n * LANES;
        store(turned + n * LANES, at < hidden ? load(recurrent + row * hidden + at, hidden - at) : Vec{});
      }
    }
}

void gs_run_back(const BackCall* call) {
  BackJob job{*call, {}};
  const int64_t threads = std::min<int64_t>(call->threads, MOST_THREADS);
  if (threads <= 1 || !call->pool)
    take_back_part(job, 0, 1);
  else
    call->pool->parallel(back_body, &job, static_cast<unsigned>(threads), 0);
}

}
